"""One stage of a run: its optimizer, steps, log lines, evaluations, checkpoints, and the weights that it keeps."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save

from pocketbert.configs import TaskConfig
from pocketbert.errors import TrainingFailed
from pocketbert.files import write_bytes
from pocketbert.model import Model
from pocketbert.progress import bar, log_info
from pocketbert.training.callbacks import LossWatch, MetricsLog
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
    write_checkpoint,
)
from pocketbert.training.step import TrainingModel, adapter_variables

if TYPE_CHECKING:
    from pocketbert.training.trainer import Trainer

STEPS_PER_LOG_LINE = 50
# Shorter epochs are evaluated at fixed steps: after each of them, the choice of the best would mostly be chance.
SHORT_EPOCH = 50


class Clock:
    """Seconds of a run over all attempts, and since its last checkpoint.

    Args:
      before: seconds of earlier attempts.
    """

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before
        self._restarted = time.monotonic()

    def seconds(self) -> float:
        """Seconds of all attempts."""
        return time.monotonic() - self._start

    def due(self, interval: float) -> bool:
        """Whether `interval` seconds have passed since the last `restart`."""
        return time.monotonic() - self._restarted >= interval

    def restart(self) -> None:
        """Begins an interval."""
        self._restarted = time.monotonic()


class StageRun:
    """The steps of a stage.

    Args:
      stage: the stage.
      model: the model, with the weights that the previous stage kept.
      training_model: the model with the stage's loss.
      data: the stage's data.
      run: options of the run.
      distribution: replicas of the run.

    Attributes:
      total_steps: number of steps, unless patience ends the stage early.
      loss_names: names of the values that `steps` yields; the first is the loss.
      variables: all variables that a step reads, and that a checkpoint therefore contains; set by `restore`.
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
        # A run without named stages has one term, which equals the loss.
        self.loss_names: Sequence[str] = training_model.loss_names if stage.name else training_model.loss_names[:1]
        self.total_steps = data.total_steps
        self._model, self._training_model, self._data = model, training_model, data
        self._seed, self._distribution = run.seed, distribution
        self._step: Any = None

    def restore(self, folder: Path, state: TrainState) -> TrainState:
        """Makes the optimizer and restores all variables.

        Args:
          folder: folder of the run. Its checkpoint belongs to this stage or to the end of the previous one, or is
            absent.
          state: position in the checkpoint, or at the beginning of the stage.

        Returns:
          The position.
        """
        checkpoint = folder / CHECKPOINT_FILE
        begins = state.step == state.first_step
        moments = read_arrays(checkpoint, "optimizer/") if self._carries_moments(state) else {}
        # Schedule and multipliers count steps of the stage; the optimizer's counter may have started earlier.
        first = int(moments["iterations"]) - (state.step - state.first_step) if moments else 0
        optimizer = self._training_model.make_optimizer(self.total_steps, first)
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
        """Examples of each step of an epoch, or up to the next evaluation if the stage sets `evaluations`."""
        if self.stage.evaluations is None:
            return self._data.plan(epoch)
        count = min(self.stage.evaluations, self.total_steps)
        first, behind = (number * self.total_steps // count for number in (epoch, epoch + 1))
        passes = (self._data.plan(number) for number in itertools.count())
        return list(itertools.islice(itertools.chain.from_iterable(passes), first, behind))

    def steps(self, epoch: int, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """Runs the steps of an epoch from `start` on, lazily; yields the losses of each, float32 [loss_names]."""
        batches = self._distribution.batches(plan[start:], lambda rows: self._data.batches(rows, epoch))
        if self._step is None:
            traced = self._training_model.TRACED
            self._step = self._distribution.step(self._losses_of_step, batches) if traced else self._losses_of_step
        for batch in batches:
            yield self._step(batch)

    def learning_rate(self) -> float:
        """Learning rate of the last step, without multipliers."""
        # `float` does not accept a mirrored variable.
        return float(tf.convert_to_tensor(self._training_model.optimizer.learning_rate))

    def save(self, folder: Path, task: TaskConfig | None, temperature: float = 1.0) -> str:
        """Saves model and adapters; returns their digest.

        Args:
          folder: receives `model/` and `adapters.safetensors`.
          task: the task with decision thresholds from the last evaluation; None keeps the model's task.
          temperature: divisor of the saved logits; training continues with the logits as they are.
        """
        if task is not None:
            self._model.tasks = (task,)
        with _divided_logits(self._model, temperature):
            self._model.save_pretrained(folder / MODEL_FOLDER, overwrite=True)
        if self._training_model.adapters:
            arrays = {name: value.numpy() for name, value in adapter_variables(self._training_model.adapters).items()}
            write_bytes(folder / ADAPTERS_FILE, save(arrays))
        return digest_kept(folder)

    def _losses_of_step(self, batch: Any) -> tf.Tensor:
        return tf.stack(list(self._training_model.update(batch).values())[: len(self.loss_names)])

    def _carries_moments(self, state: TrainState) -> bool:
        return self.stage.optimizer_state == "carry" and (state.stage > 0 or state.step > 0)


@contextlib.contextmanager
def _divided_logits(model: Model, temperature: float) -> Iterator[None]:
    """Divides the logits of the first head by a temperature within the context; afterwards all bits are as before."""
    variables = [] if temperature == 1 else next(iter(model.heads.values())).output_projection.weights
    before = [variable.numpy() for variable in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value / np.float32(temperature))
    yield
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)


class StageLoop:
    """Trains one stage from the current position of the run to its end.

    Args:
      trainer: owner of plan, model and evaluators; its `state` advances.
      stage_run: the steps.
      log: log of the run.
      clock: measures time for results and checkpoints.
    """

    def __init__(self, trainer: Trainer, stage_run: StageRun, log: MetricsLog, clock: Clock) -> None:
        self.trainer, self.stage_run, self.log, self.clock = trainer, stage_run, log, clock
        self.state, self.stage = trainer.state, stage_run.stage
        self.watch = LossWatch(self.state.losses, self.state.step, stage_run.loss_names, self.stage.name)
        self.evaluator = trainer.evaluator(self.stage)
        self.main_metric = trainer.plan.main_metric if self.stage.keep == "best" else None

    def run(self) -> None:
        """Trains until the stage is finished; the last checkpoint records that."""
        state, total = self.state, self.stage_run.total_steps
        run = self.trainer.plan.run
        with bar(total, self.stage.name or "training", "step", initial=state.step - state.first_step) as progress:
            while not state.finished:
                before = state.step - state.first_step - state.step_in_epoch
                plan = self.stage_run.plan(state.epoch)[: total - before]
                for losses in self.stage_run.steps(state.epoch, plan, state.step_in_epoch):
                    self.watch.add(losses)
                    state.step += 1
                    state.step_in_epoch += 1
                    progress.update()
                    if state.step % STEPS_PER_LOG_LINE == 0:
                        self._log_losses(progress)
                    if state.step_in_epoch == len(plan):
                        state.epoch += 1
                        state.step_in_epoch = 0
                        state.finished = state.step - state.first_step == total
                    if self._is_evaluated(len(plan)):
                        self._log_losses(progress)
                        self._log_activations()
                        self._evaluate()
                    if state.finished and self.main_metric is None:
                        self._save()
                    if state.finished or state.step_in_epoch == 0 or self.clock.due(run.checkpoint_seconds):
                        self._write_checkpoint()
                    if state.finished:
                        break

    def _is_evaluated(self, steps_per_epoch: int) -> bool:
        """Whether an evaluation follows the current step.

        After each epoch and every `evaluation_steps`; if epochs are short, at fixed steps and at the end.
        """
        state, run, fixed = self.state, self.trainer.plan.run, self.stage.short_epoch_steps
        if run.evaluation_steps and state.step % run.evaluation_steps == 0:
            return True
        if fixed is None or run.evaluation_steps or run.patience or steps_per_epoch >= SHORT_EPOCH:
            return state.step_in_epoch == 0
        return state.finished or (state.step - state.first_step) % fixed == 0

    def _write_checkpoint(self) -> None:
        state, trainer = self.state, self.trainer
        state.losses, state.log_bytes = self.watch.look(), self.log.sync()
        state.seconds = self.clock.seconds()
        if trainer.distribution.is_chief:
            write_checkpoint(trainer.folder / CHECKPOINT_FILE, self.stage_run.variables, state)
        self.clock.restart()

    def _save(self) -> None:
        """Keeps the current weights."""
        trainer = self.trainer
        self.state.kept = ""
        if trainer.distribution.is_chief:
            task = getattr(self.evaluator, "task", None)
            fitted = getattr(self.evaluator, "temperature", None)
            self.state.temperature = fitted() if fitted and self.stage.calibrate else 1.0
            folder = trainer.kept_folder(self.state.stage)
            self.state.kept = self.stage_run.save(folder, task, self.state.temperature)

    def _log_losses(self, progress: Any) -> None:
        rows = self.watch.look()
        if rows:
            means = {
                name: math.fsum(values) / len(rows)
                for name, values in zip(self.stage_run.loss_names, zip(*rows, strict=True), strict=True)
            }
            self._write_line("train", {**means, "learning_rate": self.stage_run.learning_rate()})
            progress.set_postfix_str(", ".join(f"{name} {mean:.4f}" for name, mean in means.items()), refresh=False)
            self.watch.clear()

    def _log_activations(self) -> None:
        watch = self.trainer.activation_watch
        if watch is None:
            return
        maxima = watch.maxima()
        for where, value in maxima.named().items():
            if not math.isfinite(value):
                raise TrainingFailed(
                    f"activations must stay finite; {where} is not after step {self.state.step}{self._of_stage}; try a "
                    "lower learning rate, a longer warm-up, or clipping"
                )
        self._write_line("activations", maxima.largest())

    @property
    def _of_stage(self) -> str:
        return f" of stage {self.stage.name}" if self.stage.name else ""

    def _evaluate(self) -> None:
        """Logs the metrics, keeps the best weights, and ends the stage when patience runs out."""
        state = self.state
        if self.evaluator is None:
            return
        found = self.evaluator.metrics(f"after step {state.step}{self._of_stage}")
        loss = self.evaluator.loss
        measured = found if loss is None else {**found, "loss": loss}
        self._write_line("dev", measured)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in measured.items())
        if self.main_metric is None:
            state.best_metrics, state.best_loss, state.best_step = found, loss, state.step
            log_info(f"step {state.step}: {shown}")
            return
        if self._is_best(found[self.main_metric], loss):
            self._save()
            state.best_metrics, state.best_loss, state.best_step = found, loss, state.step
            state.evaluations_since_best = 0
            log_info(f"step {state.step}: {shown} (best so far, saved)")
            return
        state.evaluations_since_best += 1
        log_info(f"step {state.step}: {shown}")
        patience = self.trainer.plan.run.patience
        if patience is not None and state.evaluations_since_best >= patience:
            log_info(f"stopping: no new best in {state.evaluations_since_best} evaluations")
            state.finished = True

    def _is_best(self, value: float, loss: float | None) -> bool:
        """Whether an evaluation beats the best one so far; a tie goes to the lower loss, then to the earlier one."""
        state = self.state
        if not state.best_metrics:
            return True
        best = state.best_metrics[self.main_metric or ""]
        if value != best or loss is None or state.best_loss is None:
            return value > best
        return loss < state.best_loss

    def _write_line(self, split: str, numbers: Mapping[str, float]) -> None:
        self.log.write(self.state.step, split, numbers, self.stage.name)


def load_kept(kept: Path, model: Model, adapters: Adapters) -> None:
    """Loads the weights that a stage kept into a model and its adapters."""
    load_weights(model, kept / MODEL_FOLDER)
    if adapters:
        arrays = load_file(kept / ADAPTERS_FILE)
        for name, variable in adapter_variables(adapters).items():
            variable.assign(arrays[name])
