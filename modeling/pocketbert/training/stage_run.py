"""One stage of a run: its optimizer, its steps, and the weights that it keeps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save

from pocketbert.configs import TaskConfig
from pocketbert.files import write_bytes
from pocketbert.model import Model
from pocketbert.training.config import RunConfig
from pocketbert.training.distribution import Distribution
from pocketbert.training.objective import Adapters
from pocketbert.training.run_folder import ADAPTERS_FILE, CHECKPOINT_FILE, MODEL_FOLDER
from pocketbert.training.stage import Stage
from pocketbert.training.stage_data import StageData
from pocketbert.training.state import (
    TrainState,
    digest_kept,
    load_weights,
    read_arrays,
    read_checkpoint,
    training_variables,
)
from pocketbert.training.step import TrainingModel, adapter_variables, make_optimizer


class StageRun:
    """A stage from where the run stands.

    Args:
      stage: the stage.
      model: as the stage before left it.
      training_model: of that model and stage.
      data: the stage's.
      run: how it is run.
      distribution: the run's replicas.

    Attributes:
      total_steps: how many steps, if nothing stops them early.
      loss_names: what `steps` gives of each step; the first is the loss.
      variables: all that a step reads and a checkpoint therefore holds; there after `restore`.
    """

    variables: dict[str, tf.Variable]

    def __init__(
        self,
        stage: Stage,
        model: Model,
        training_model: TrainingModel,
        data: StageData,
        run: RunConfig,
        distribution: Distribution,
    ) -> None:
        self.stage = stage
        # Where there are no stages to tell apart, the one term is the loss.
        self.loss_names: Sequence[str] = training_model.loss_names if stage.name else training_model.loss_names[:1]
        self.total_steps = data.total_steps
        self._model, self._training_model, self._data = model, training_model, data
        self._seed, self._distribution = run.seed, distribution
        self._step: Any = None

    def restore(self, folder: Path, state: TrainState) -> TrainState:
        """Makes the optimizer and sets all variables to what they are where the run stands.

        Args:
          folder: the run's; its checkpoint is of this stage, of the stage before as that ended, or not there.
          state: as the checkpoint has it, or the stage's beginning.
        """
        checkpoint = folder / CHECKPOINT_FILE
        begins = state.step == state.first_step
        moments = read_arrays(checkpoint, "optimizer/") if self._goes_on(state) else {}
        # The schedule and the multipliers count the stage's steps, wherever the optimizer's counter stands.
        first = int(moments["iterations"]) - (state.step - state.first_step) if moments else 0
        optimizer = make_optimizer(self.stage, self.total_steps, first)
        self._training_model.compile(optimizer=optimizer)
        self.variables = training_variables(self._training_model, optimizer)
        if not begins:
            return read_checkpoint(checkpoint, self.variables) or state
        for name, variable in optimizer.named_state().items():
            if name in moments:
                variable.assign(moments[name])
        for index, generator in enumerate(self._training_model.dropout_generators()):
            generator.reset_from_key_counter(key=self._seed, counter=[index, state.stage])
        return state

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The examples of each step of an epoch, or of the part up to an evaluation where the stage counts those."""
        if self.stage.evaluations is None:
            return self._data.plan(epoch)
        count = min(self.stage.evaluations, self.total_steps)
        first, behind = (number * self.total_steps // count for number in (epoch, epoch + 1))
        passes = (self._data.plan(number) for number in itertools.count())
        return list(itertools.islice(itertools.chain.from_iterable(passes), first, behind))

    def steps(self, epoch: int, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """Takes the epoch's steps from `start` on, each on request; gives its losses, float32 [names]."""
        batches = self._distribution.batches(plan[start:], lambda rows: self._data.batches(rows, epoch))
        if self._step is None:
            self._step = self._distribution.step(self._losses_of_step, batches)
        for batch in batches:
            yield self._step(batch)

    def learning_rate(self) -> float:
        """The last step's, without multipliers."""
        # A mirrored variable is no number by itself.
        return float(tf.convert_to_tensor(self._training_model.optimizer.learning_rate))

    def save(self, folder: Path, task: TaskConfig | None) -> str:
        """Keeps model and adapters as they are; returns their digest.

        Args:
          folder: gets `model/` and `adapters.safetensors`.
          task: the model's, with what the last evaluation chose; None leaves it.
        """
        if task is not None:
            self._model.tasks = (task,)
        self._model.save_pretrained(folder / MODEL_FOLDER, overwrite=True)
        if self._training_model.adapters:
            arrays = {name: value.numpy() for name, value in adapter_variables(self._training_model.adapters).items()}
            write_bytes(folder / ADAPTERS_FILE, save(arrays))
        return digest_kept(folder)

    def _losses_of_step(self, batch: Any) -> tf.Tensor:
        return tf.stack(list(self._training_model.update(batch).values())[: len(self.loss_names)])

    def _goes_on(self, state: TrainState) -> bool:
        return self.stage.optimizer_state == "carry" and (state.stage > 0 or state.step > 0)


def load_kept(kept: Path, model: Model, adapters: Adapters) -> None:
    """Sets a model and its adapters to what a stage kept."""
    load_weights(model, kept / MODEL_FOLDER)
    if adapters:
        arrays = load_file(kept / ADAPTERS_FILE)
        for name, variable in adapter_variables(adapters).items():
            variable.assign(arrays[name])
