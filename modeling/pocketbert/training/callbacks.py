"""Keras callbacks (`tf_keras.callbacks.Callback`) for a run's stages, epochs and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.training.distribution import Distribution
from pocketbert.training.stage_batches import StageBatches

Callback: TypeAlias = tf_keras.callbacks.Callback


class RunCallbacks:
    """Calls a user's callbacks in a run; only the chief has them.

    Besides Keras hooks, callbacks can have `on_stage_begin(name, logs)`, `on_stage_end(name, logs)` and
    `steps_of_stage(taken, planned)`. The last one runs after each step and returns the number of steps in the stage, or
    None for no change; a resumed run begins with its last answer.

    Their `model` is the trained model, and logs hold floats. They see neither the first steps of a resumed run nor a
    finished run. They are not saved. Unless a callback stops it, a run has the same result without them.

    Raises:
      UserError: a callback has another class.
    """

    def __init__(self, callbacks: Sequence[Callback], model: Model, distribution: Distribution) -> None:
        for callback in callbacks:
            if not isinstance(callback, tf_keras.callbacks.Callback):
                raise UserError(
                    "callbacks must be objects of tf_keras.callbacks.Callback, the Keras of this package; received "
                    f"{type(callback).__module__}.{type(callback).__name__}"
                )
        self._is_used, self._model, self._distribution = bool(callbacks), model, distribution
        self._list = tf_keras.callbacks.CallbackList(list(callbacks) if distribution.is_chief else [])
        self._losses: list[tf.Tensor] = []
        self._names: Sequence[str] = ()
        self._first_epoch = 0
        self._metrics: dict[str, float] = {}

    def begin(self, step: int, total_steps: int) -> None:
        """Begins or resumes the run."""
        self._list.set_params({"verbose": 0, "epochs": None, "steps": total_steps})
        self._list.set_model(self._model)
        self._list.on_train_begin({"step": float(step)})

    def begin_stage(self, name: str, names: Sequence[str], step: int, earlier: Sequence[StageBatches]) -> None:
        """Begins a stage."""
        self._names, self._metrics, self._model.stop_training = names, {}, False
        if self._is_used:
            self._first_epoch = sum(batches.epochs() for batches in earlier)
        self._call_stage("on_stage_begin", name, step)

    def end_stage(self, name: str, step: int) -> None:
        """Ends a stage."""
        self._call_stage("on_stage_end", name, step)

    def begin_epoch(self, epoch: int) -> None:
        """Begins or resumes an epoch."""
        self._losses = []
        self._list.on_epoch_begin(self._first_epoch + epoch, {})

    def begin_step(self, step_in_epoch: int) -> None:
        """Begins a step."""
        self._list.on_train_batch_begin(step_in_epoch, {})

    def end_step(self, step_in_epoch: int, step: int, losses: tf.Tensor) -> bool:
        """Ends a step; returns whether a callback ends the stage.

        Args:
          step_in_epoch: number of the step in its epoch, from 0.
          step: steps taken in the run.
          losses: the step's losses, float32 `[names]`.
        """
        if not self._is_used:
            return False
        self._losses.append(losses)
        # As in Keras' `fit`, for `TensorBoard` with an `update_freq`.
        self._model._train_counter.assign(step)
        for name, loss in zip(self._names, tf.unstack(losses), strict=True):
            tf.summary.scalar(f"batch_{name}", loss, step=step)
        if self._list._should_call_train_batch_hooks:
            self._list.on_train_batch_end(step_in_epoch, dict(zip(self._names, losses.numpy().tolist(), strict=True)))
        return self._stops()

    def steps_of_stage(self, taken: int, planned: int, current: int) -> int:
        """Returns the number of steps in the stage; runs with replicas keep the plan.

        Args:
          taken: steps taken in the stage.
          planned: planned steps.
          current: the last answer, or `planned`.
        """
        if self._distribution.replicas > 1:
            return planned
        hooks = (getattr(callback, "steps_of_stage", None) for callback in self._list.callbacks)
        answers = [answer for hook in hooks if hook and (answer := hook(taken, planned)) is not None]
        return max(min([planned, *answers]) if answers else current, taken)

    def evaluated(self, metrics: Mapping[str, float], loss: float | None) -> None:
        """Receives an evaluation for the next epoch's logs; names begin with `val_`."""
        measured = metrics if loss is None else {**metrics, "loss": loss}
        self._metrics = {f"val_{name}": float(value) for name, value in measured.items()}

    def end_epoch(self, epoch: int) -> bool:
        """Ends an epoch, with its mean losses and an evaluation since the last one; see `end_step`."""
        if not self._is_used:
            return False
        means = tf.reduce_mean(tf.stack(self._losses), axis=0).numpy().tolist()
        logs = {**dict(zip(self._names, means, strict=True)), **self._metrics}
        # Once, or EarlyStopping would count an old evaluation as one without improvement.
        self._metrics = {}
        self._list.on_epoch_end(self._first_epoch + epoch, logs)
        return self._stops()

    def end(self, step: int) -> None:
        """Ends the run."""
        self._list.on_train_end({"step": float(step)})

    def _stops(self) -> bool:
        return self._distribution.as_chief_says(bool(self._model.stop_training))

    def _call_stage(self, hook: str, name: str, step: int) -> None:
        for callback in self._list.callbacks:
            getattr(callback, hook, lambda *_: None)(name, {"step": float(step)})
