"""Checkpoints with digests: every variable and position that the next step depends on."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open

from pocketbert.checkpoints.module_layout import model_files
from pocketbert.errors import UserError
from pocketbert.files import digest_files, sha256, write_tensors
from pocketbert.hub.download import origin
from pocketbert.hub.names import HUB_SUFFIX
from pocketbert.training.loss_scaling import loss_scale_state
from pocketbert.training.optimizers import NamedOptimizer
from pocketbert.training.stage import Stage
from pocketbert.training.step import TrainingModel
from pocketbert_runtime.json_reading import from_json, parse_json

_POSITION_KEY, _DIGEST_KEY = "position", "sha256"


@dataclasses.dataclass
class TrainState:
    """A run's position. Together with the variables, it determines the next step.

    Attributes:
      epoch: finished epochs in the stage.
      step_in_epoch: steps taken in the current epoch.
      step: steps taken in the run.
      best_metrics: metrics from the stage's best evaluation; empty before the first evaluation.
      best_loss: mean label loss in that evaluation; None if unknown.
      best_step: steps before that evaluation; 0 before the first evaluation.
      evaluations_since_best: evaluations after the best one.
      log_bytes: length of the metrics log at this position.
      losses: losses that no log line covers yet, one row per step.
      seconds: training time so far.
      finished: whether the stage is finished.
      stage: finished stages.
      first_step: steps taken before this stage.
      stage_steps: steps in this stage, if a callback has changed the plan.
      past: summaries of the finished stages.
      temperature: divisor for the logits with the weights saved last.
      kept: `digest_kept` of the weights saved last; empty before the first save.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    best_loss: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0
    log_bytes: int = 0
    losses: list[list[float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False
    stage: int = 0
    first_step: int = 0
    stage_steps: int | None = None
    past: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    kept: str = ""
    temperature: float = 1.0

    def summary(self) -> dict[str, Any]:
        """Summarizes the current stage for the result."""
        return {"steps": self.step - self.first_step, "metrics": self.best_metrics, "best_step": self.best_step}

    def is_best(self, metrics: Mapping[str, float], loss: float | None, main_metric: str) -> bool:
        """Whether an evaluation beats the best one so far; ties go to the lower loss, then to the earlier one."""
        if not self.best_metrics:
            return True
        value, best = metrics[main_metric], self.best_metrics[main_metric]
        if value != best or loss is None or self.best_loss is None:
            return value > best
        return loss < self.best_loss

    def next_stage(self) -> TrainState:
        """Returns the position at the beginning of the next stage."""
        return TrainState(
            step=self.step,
            log_bytes=self.log_bytes,
            seconds=self.seconds,
            stage=self.stage + 1,
            first_step=self.step,
            past=[*self.past, self.summary()],
            kept=self.kept,
        )


class Trained(Protocol):
    """A model, or a model with adapters."""

    def named_variables(self) -> Mapping[str, tf.Variable]:
        """All weights by name."""

    def dropout_generators(self) -> Sequence[tf.random.Generator]:
        """Random states for all dropout layers."""


def training_variables(model: Trained, optimizer: NamedOptimizer) -> dict[str, tf.Variable]:
    """Returns all variables for a step, name → variable: weights, moments and dropout states. Checkpoints store them.

    The optimizer must be built. Except for dropout states, names do not depend on the construction order.
    """
    return {
        **{f"weights/{name}": variable for name, variable in model.named_variables().items()},
        **{f"optimizer/{name}": variable for name, variable in optimizer.named_state().items()},
        **{f"dropout/{index}": generator.state for index, generator in enumerate(model.dropout_generators())},
    }


def write_checkpoint(path: Path, variables: Mapping[str, tf.Variable], state: TrainState) -> None:
    """Writes one file with a digest, under a temporary name, and renames it over the previous one."""
    arrays = {name: np.asarray(variable.numpy()) for name, variable in variables.items()}
    text = json.dumps(dataclasses.asdict(state))
    digest = _digest(text, ((name, arrays[name]) for name in sorted(arrays)))
    write_tensors(path, arrays, {_POSITION_KEY: text, _DIGEST_KEY: digest})


def _digest(position: str, arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """SHA-256 over a position and arrays, in the order of their names."""
    digest = hashlib.sha256(position.encode())
    for name, array in arrays:
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, TrainState]]:
    """Opens a checkpoint and verifies its digest; yields arrays and position; raises a `UserError` if it is damaged."""
    try:
        with safe_open(path, framework="numpy") as stored:
            metadata = stored.metadata()
            text = metadata[_POSITION_KEY]
            digest = _digest(text, ((name, stored.get_tensor(name)) for name in sorted(stored.keys())))
            whole = digest == metadata[_DIGEST_KEY]
            position = from_json(TrainState, parse_json(text, path), str(path)) if whole else None
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(_damaged(path)) from error
    if position is None:
        raise UserError(_damaged(path))
    with safe_open(path, framework="numpy") as stored:
        yield stored, position


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged: its SHA-256 does not match its content; remove the file to train again from the start, or "
        "choose another output"
    )


def read_state(path: Path) -> TrainState | None:
    """Reads a checkpoint's position; None if the file does not exist.

    Raises:
      UserError: the file is damaged.
    """
    if not path.exists():
        return None
    with _opened(path) as (_, position):
        return position


def read_arrays(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """Reads arrays with names that begin with `prefix`; returns name without the prefix → array."""
    with _opened(path) as (stored, _):
        return {name.removeprefix(prefix): stored.get_tensor(name) for name in stored.keys() if name.startswith(prefix)}


def read_checkpoint(path: Path, variables: Mapping[str, tf.Variable]) -> TrainState | None:
    """Restores all variables from a checkpoint; returns its position, or None if the file does not exist.

    Raises:
      UserError: the file is damaged, or contains other variables.
    """
    if not path.exists():
        return None
    with _opened(path) as (stored, position):
        shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}
        expected = {name: tuple(variable.shape) for name, variable in variables.items()}
        different = sorted(name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name))
        if different:
            raise UserError(
                f"{path}: the checkpoint must hold this run's variables; {len(different)} differ "
                f"({', '.join(different[:3])}…); remove the run or choose another output"
            )
        for name, variable in variables.items():
            variable.assign(stored.get_tensor(name))
    return position


def restore_stage(
    path: Path, state: TrainState, stage: Stage, training_model: TrainingModel, total_steps: int, seed: int
) -> tuple[TrainState, dict[str, tf.Variable]]:
    """Makes a stage's optimizer and restores all variables for its next step.

    Args:
      path: checkpoint from this stage or from the end of the previous one, or no file.
      state: position in the checkpoint, or at the beginning of the stage.
      stage: the stage.
      training_model: the model with the stage's loss.
      total_steps: steps in the stage.
      seed: the run's seed, for dropout.
    Returns:
      The position, and the variables from `training_variables` and `loss_scale_state`.
    Raises:
      UserError: the file is damaged, or contains other variables.
    """
    begins = state.step == state.first_step
    carries = stage.optimizer_state == "carry" and (state.stage > 0 or state.step > 0)
    moments = read_arrays(path, "optimizer/") if carries else {}
    # Schedule and multipliers count steps in the stage; the optimizer's counter may have started earlier.
    first = int(moments["iterations"]) - (state.step - state.first_step) if moments else 0
    optimizer = training_model.make_optimizer(total_steps, first)
    training_model.compile(optimizer=optimizer)
    variables = {**training_variables(training_model, optimizer), **loss_scale_state(training_model.optimizer)}
    if not begins:
        return read_checkpoint(path, variables) or state, variables
    for name, variable in optimizer.named_state().items():
        if name in moments:
            variable.assign(moments[name])
    for index, generator in enumerate(training_model.dropout_generators()):
        generator.reset_from_key_counter(key=seed, counter=[index, state.stage])
    return state, variables


def recorded_model(role: str, model_directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns a model's digest and, for a model from the hub, its origin, for a record; names begin with `role`."""
    return {f"{role}_sha256": digest_directory(model_directory), **recorded_origin(role, model_directory)}


def recorded_origin(role: str, model_directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the origin of a model from the hub, for a record; empty for other models."""
    source = origin(model_directory)
    return {f"{role}{HUB_SUFFIX}": source} if source else {}


def digest_directory(model_directory: str | os.PathLike[str]) -> str:
    """SHA-256 over the files that determine a model directory's outputs.

    Raises:
      UserError: the folder is not a model directory.
    """
    files = model_files(model_directory)
    if not files:
        raise UserError(f"the model must be a model directory with config.json and weights; received {model_directory}")
    return digest_files({name: sha256(path) for name, path in files.items()})
