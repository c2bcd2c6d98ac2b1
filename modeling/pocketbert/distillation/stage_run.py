"""One stage of a distillation: its data as batches, and its steps for the driver of all runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save

from pocketbert.checkpoints.directory import read_directory
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.feature_store import FeatureStore
from pocketbert.data.masking import masked_dataset
from pocketbert.distillation.distiller import Distiller, adapter_variables, make_optimizer
from pocketbert.distillation.method import Stage, Steps
from pocketbert.distillation.run_options import RunOptions
from pocketbert.files import write_bytes
from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.checkpointing import (
    ADAPTERS_FILE,
    CHECKPOINT_FILE,
    MODEL_FOLDER,
    Position,
    read_arrays,
    read_checkpoint,
    training_variables,
)
from pocketbert.training.evaluation import Evaluator


class StageData:
    """A stage's examples as batches, with the teacher's stored targets where there is a store.

    Args:
      stage: says how many examples a batch has, how long the stage is, and whether text is masked.
      encoded: the examples.
      tokenizer: the one that encoded them.
      seed: of order and masks.
      store: the stage's targets; None for a live teacher.
    """

    def __init__(
        self,
        stage: Stage,
        encoded: EncodedExamples,
        tokenizer: WordPieceTokenizer,
        seed: int,
        store: FeatureStore | None = None,
    ) -> None:
        self._stage, self._encoded, self._tokenizer = stage, encoded, tokenizer
        self._seed, self._store = seed, store
        steps_an_epoch = math.ceil(len(encoded) / stage.batch_size)
        by_steps = isinstance(stage.duration, Steps)
        self.total_steps = stage.duration.count * (1 if by_steps else steps_an_epoch)
        self.epochs = math.ceil(self.total_steps / steps_an_epoch)
        self._last_steps = self.total_steps - (self.epochs - 1) * steps_an_epoch

    def __len__(self) -> int:
        return len(self._encoded)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The examples of each step of an epoch; the last epoch ends where the stage does."""
        plan = plan_batches(self._encoded.lengths, batch_size=self._stage.batch_size, seed=self._seed, epoch=epoch)
        return plan[: self._last_steps] if epoch == self.epochs - 1 else plan

    def batches(self, epoch: int, plan: list[np.ndarray], start: int) -> tf.data.Dataset:
        """What `Distiller` takes, from step `start` of the epoch on."""
        if self._store is not None:
            return self._store.dataset(self._encoded, plan, start)
        if self._stage.masked_text:
            return masked_dataset(self._encoded, plan, self._tokenizer, seed=self._seed, epoch=epoch, start=start)
        batches = dataset(self._encoded, plan, start)
        if self._encoded.labels is None:
            return batches
        return batches.map(lambda inputs, labels: {**inputs, "labels": labels})


class StageRun:
    """A stage from where the run stands; a `Stretch`.

    Args:
      stage: the stage.
      student: as the stage before left it.
      distiller: of that student.
      data: the stage's.
      evaluator: scores the student; None where no head is trained.
      main_metric: what chooses the best weights, if the stage keeps those.
      kept: the folder for the weights that the stage keeps: `model/` and `adapters.safetensors`.
      run_options: of the run.
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
    ) -> None:
        self.name = stage.name
        self.loss_names: Sequence[str] = distiller.loss_names
        self.epochs, self.total_steps = data.epochs, data.total_steps
        self.main_metric = main_metric if stage.keep == "best" else None
        self.evaluation_steps, self.patience = run_options.evaluation_steps, run_options.patience
        self._stage, self._student, self._distiller, self._data = stage, student, distiller, data
        self._evaluator, self._kept, self._seed = evaluator, kept, run_options.seed
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
        """The examples of each step of an epoch."""
        return self._data.plan(epoch)

    def steps(self, epoch: int, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """Takes the steps one by one; gives each one's loss and terms."""
        batches = self._data.batches(epoch, plan, start)
        if self._step is None:
            self._step = tf.function(
                lambda data: tf.stack(list(self._distiller.train_step(data).values())),
                input_signature=[batches.element_spec],
            )
        for batch in batches:
            yield self._step(batch)

    def learning_rate(self) -> float:
        """The next step's, without multipliers."""
        return float(self._distiller.optimizer.learning_rate)

    def evaluate(self, step: int) -> dict[str, float] | None:
        """The student's metrics; None where no head is trained."""
        if self._evaluator is None:
            return None
        return self._evaluator.metrics(f"after step {step} of stage {self.name}")

    def save(self) -> None:
        """Keeps student and adapters as they are."""
        self._student.save_pretrained(self._kept / MODEL_FOLDER, overwrite=True)
        if self._distiller.adapters:
            arrays = {name: value.numpy() for name, value in adapter_variables(self._distiller.adapters).items()}
            write_bytes(self._kept / ADAPTERS_FILE, save(arrays))

    def _goes_on(self, position: Position) -> bool:
        return self._stage.optimizer_state == "carry" and (position.stage > 0 or position.step > 0)


def load_kept(kept: Path, student: Model, adapters: dict[str, Any]) -> None:
    """Sets a student and its adapters to what a stage kept."""
    tensors = read_directory(kept / MODEL_FOLDER).tensors
    for path, variable in student.weights_by_path().items():
        variable.assign(tensors[path])
    if adapters:
        arrays = load_file(kept / ADAPTERS_FILE)
        for name, variable in adapter_variables(adapters).items():
            variable.assign(arrays[name])
