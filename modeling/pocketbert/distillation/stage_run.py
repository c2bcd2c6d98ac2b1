"""One stage of a distillation: its steps, for the driver of all runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save

from pocketbert.activation_stats import ActivationWatch
from pocketbert.distillation.distiller import Distiller, adapter_variables, make_optimizer
from pocketbert.distillation.method import Stage
from pocketbert.distillation.run_options import RunOptions
from pocketbert.distillation.stage_data import StageData
from pocketbert.files import write_bytes
from pocketbert.model import Model
from pocketbert.training.checkpointing import (
    Position,
    digest_kept,
    load_weights,
    read_arrays,
    read_checkpoint,
    training_variables,
)
from pocketbert.training.distribution import Distribution
from pocketbert.training.run_folder import ADAPTERS_FILE, CHECKPOINT_FILE, MODEL_FOLDER


class Evaluator(Protocol):
    """What scores the student on held-out examples."""

    def metrics(self, when: str) -> dict[str, float]:
        """The metrics of the weights as they are; `when` is for an error's message."""


class StageRun:
    """A stage from where the run stands; a `Stretch`.

    Args:
      stage: the stage.
      student: as the stage before left it.
      distiller: of that student.
      data: the stage's.
      evaluator: scores the student; None where there is nothing to score it by.
      main_metric: what chooses the best weights, if the stage keeps those.
      kept: the folder for the weights that the stage keeps: `model/` and `adapters.safetensors`.
      run_options: of the run.
      distribution: the run's replicas.
      activation_watch: of the student, where it is watched.
    """

    def __init__(
        self,
        stage: Stage,
        student: Model,
        distiller: Distiller,
        data: StageData,
        evaluator: Evaluator | None,
        main_metric: str | None,
        kept: Path,
        run_options: RunOptions,
        distribution: Distribution,
        activation_watch: ActivationWatch | None = None,
    ) -> None:
        self.name = stage.name
        self.loss_names: Sequence[str] = distiller.loss_names
        self.total_steps = data.total_steps
        self.main_metric = main_metric if stage.keep == "best" else None
        self.activation_watch = activation_watch
        self.evaluation_steps, self.patience = run_options.evaluation_steps, run_options.patience
        self._stage, self._student, self._distiller, self._data = stage, student, distiller, data
        self._evaluator, self._kept, self._seed = evaluator, kept, run_options.seed
        self._distribution = distribution
        self._step: Any = None

    def restore(self, folder: Path, position: Position) -> Position:
        """Makes the optimizer and sets all variables to what they are where the run stands.

        Args:
          folder: the run's; its checkpoint is of this stage, of the stage before as that ended, or not there.
          position: as the checkpoint has it, or the stage's beginning.
        """
        checkpoint = folder / CHECKPOINT_FILE
        begins = position.step == position.first_step
        state = read_arrays(checkpoint, "optimizer/") if self._goes_on(position) else {}
        # The schedule and the multipliers count the stage's steps, wherever the optimizer's counter stands.
        first = int(state["iterations"]) - (position.step - position.first_step) if state else 0
        optimizer = make_optimizer(self._stage, self.total_steps, first)
        self._distiller.compile(optimizer=optimizer)
        self.variables = training_variables(self._distiller, optimizer)
        if not begins:
            return read_checkpoint(checkpoint, self.variables) or position
        for name, variable in optimizer.named_state().items():
            if name in state:
                variable.assign(state[name])
        for index, generator in enumerate(self._distiller.dropout_generators()):
            generator.reset_from_key_counter(key=self._seed, counter=[index, position.stage])
        return position

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The examples of each step of an epoch, or of the stretch up to an evaluation where the stage counts those."""
        if self._stage.evaluations is None:
            return self._data.plan(epoch)
        count = min(self._stage.evaluations, self.total_steps)
        first, behind = (number * self.total_steps // count for number in (epoch, epoch + 1))
        passes = (self._data.plan(number) for number in itertools.count())
        return list(itertools.islice(itertools.chain.from_iterable(passes), first, behind))

    def steps(self, epoch: int, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """Takes the steps one by one; gives each one's loss and terms."""
        batches = self._distribution.batches(plan[start:], lambda rows: self._data.batches(rows, epoch))
        if self._step is None:
            self._step = self._distribution.step(self._losses_of_step, batches)
        for batch in batches:
            yield self._step(batch)

    def learning_rate(self) -> float:
        """The last step's, without multipliers."""
        # A mirrored variable is no number by itself.
        return float(tf.convert_to_tensor(self._distiller.optimizer.learning_rate))

    def evaluate(self, step: int) -> dict[str, float] | None:
        """The student's metrics; None where there is nothing to score it by."""
        if self._evaluator is None:
            return None
        return self._evaluator.metrics(f"after step {step} of stage {self.name}")

    def save(self) -> str:
        """Keeps student and adapters as they are; returns their digest."""
        task = getattr(self._evaluator, "task", None)
        if task is not None:
            self._student.tasks = (task,)
        self._student.save_pretrained(self._kept / MODEL_FOLDER, overwrite=True)
        if self._distiller.adapters:
            arrays = {name: value.numpy() for name, value in adapter_variables(self._distiller.adapters).items()}
            write_bytes(self._kept / ADAPTERS_FILE, save(arrays))
        return digest_kept(self._kept)

    def _losses_of_step(self, batch: Any) -> tf.Tensor:
        return tf.stack(list(self._distiller.update(batch).values()))

    def _goes_on(self, position: Position) -> bool:
        return self._stage.optimizer_state == "carry" and (position.stage > 0 or position.step > 0)


def load_kept(kept: Path, student: Model, adapters: dict[str, Any]) -> None:
    """Sets a student and its adapters to what a stage kept."""
    load_weights(student, kept / MODEL_FOLDER)
    if adapters:
        arrays = load_file(kept / ADAPTERS_FILE)
        for name, variable in adapter_variables(adapters).items():
            variable.assign(arrays[name])
