"""Checkpoints: all that the next step of a run depends on, with a digest, and digests of what a run is made from."""

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

from pocketbert.checkpoints.directory import WEIGHTS_NAME, read_directory
from pocketbert.errors import UserError
from pocketbert.files import sha256, write_tensors
from pocketbert.json_reading import from_json, parse_json
from pocketbert.model import Model
from pocketbert.training.optimizers import NamedOptimizer
from pocketbert.training.run_folder import ADAPTERS_FILE, MODEL_FOLDER

_POSITION_KEY, _DIGEST_KEY = "position", "sha256"


@dataclasses.dataclass
class TrainState:
    """Where a run stands: with the variables, all that the next step depends on.

    Attributes:
      epoch: epochs that are over.
      step_in_epoch: steps taken of the current epoch.
      step: steps taken in all.
      best_metrics: the metrics of the best evaluation so far; empty before the first.
      best_step: steps taken before that evaluation; 0 before the first.
      evaluations_since_best: evaluations after that one.
      log_bytes: length of the metrics log that belongs to this position.
      losses: the steps' losses that no line of the log covers yet, a row a step.
      seconds: time spent so far.
      finished: no step of this stage follows.
      stage: stages that are over, where a run has stages; epochs, best and losses are then of the stage at hand.
      first_step: steps taken before this stage.
      past: the summaries of the stages that are over.
      kept: `digest_kept` of the weights that were saved last; empty before the first.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    best_step: int = 0
    evaluations_since_best: int = 0
    log_bytes: int = 0
    losses: list[list[float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False
    stage: int = 0
    first_step: int = 0
    past: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    kept: str = ""

    def summary(self) -> dict[str, Any]:
        """What a result says of the stage at hand."""
        return {"steps": self.step - self.first_step, "metrics": self.best_metrics, "best_step": self.best_step}

    def next_stage(self) -> TrainState:
        """Where the run stands as the following stage begins."""
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
    """What has weights and dropouts: a `Model`, or what holds a model and more."""

    def named_variables(self) -> Mapping[str, tf.Variable]:
        """Every weight by its name."""

    def dropout_generators(self) -> Sequence[tf.random.Generator]:
        """Every dropout's random state."""


def training_variables(model: Trained, optimizer: NamedOptimizer) -> dict[str, tf.Variable]:
    """Every variable that a step reads and a checkpoint therefore holds: weights, moments, dropouts' random states.

    Args:
      model: what is trained.
      optimizer: built for it.

    Returns:
      Name → variable; the names do not depend on the order of construction of anything but dropouts.
    """
    return {
        **{f"weights/{name}": variable for name, variable in model.named_variables().items()},
        **{f"optimizer/{name}": variable for name, variable in optimizer.named_state().items()},
        **{f"dropout/{index}": generator.state for index, generator in enumerate(model.dropout_generators())},
    }


def write_checkpoint(path: Path, variables: Mapping[str, tf.Variable], state: TrainState) -> None:
    """Writes all into one file with a digest, aside, and renames it over the previous one.

    Args:
      path: the file.
      variables: as `training_variables` gives them.
      state: where the run stands.
    """
    arrays = {name: np.asarray(variable.numpy()) for name, variable in variables.items()}
    text = json.dumps(dataclasses.asdict(state))
    digest = _digest(text, ((name, arrays[name]) for name in sorted(arrays)))
    write_tensors(path, arrays, {_POSITION_KEY: text, _DIGEST_KEY: digest})


def _digest(position: str, arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """SHA-256 of a position and of arrays in the order of their names."""
    digest = hashlib.sha256(position.encode())
    for name, array in arrays:
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, TrainState]]:
    """A checkpoint whose digest is right, and its position.

    Raises:
      UserError: the file is damaged.
    """
    try:
        with safe_open(path, framework="numpy") as stored:
            metadata = stored.metadata()
            text = metadata[_POSITION_KEY]
            found = _digest(text, ((name, stored.get_tensor(name)) for name in sorted(stored.keys())))
            whole = found == metadata[_DIGEST_KEY]
            position = from_json(TrainState, parse_json(text, path), str(path)) if whole else None
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(_damaged(path)) from error
    if position is None:
        raise UserError(_damaged(path))
    with safe_open(path, framework="numpy") as stored:
        yield stored, position


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged: its SHA-256 is not that of its content; remove the file to train again from the start, or "
        "choose another output"
    )


def read_state(path: Path) -> TrainState | None:
    """Where the run stood when `write_checkpoint` wrote a file, or None if there is no such file.

    Raises:
      UserError: the file is damaged.
    """
    if not path.exists():
        return None
    with _opened(path) as (_, position):
        return position


def read_arrays(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint whose names begin with `prefix`: name without it → array."""
    with _opened(path) as (stored, _):
        return {name.removeprefix(prefix): stored.get_tensor(name) for name in stored.keys() if name.startswith(prefix)}


def read_checkpoint(path: Path, variables: Mapping[str, tf.Variable]) -> TrainState | None:
    """Sets all variables to what `write_checkpoint` wrote.

    Args:
      path: the file.
      variables: as `training_variables` gives them, of a model and an optimizer of the same kind.

    Returns:
      Where the run stood, or None if there is no such file (nothing is set then).

    Raises:
      UserError: the file is damaged, or holds other variables.
    """
    if not path.exists():
        return None
    with _opened(path) as (stored, position):
        found = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}
        expected = {name: tuple(variable.shape) for name, variable in variables.items()}
        different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        if different:
            raise UserError(
                f"{path}: the checkpoint must hold this run's variables; {len(different)} differ "
                f"({', '.join(different[:3])}…); remove the run or choose another output"
            )
        for name, variable in variables.items():
            variable.assign(stored.get_tensor(name))
    return position


def digest_kept(folder: Path) -> str:
    """SHA-256 of the weights that a run keeps in a folder: a model directory's and, where there are any, adapters'."""
    files = [folder / MODEL_FOLDER / WEIGHTS_NAME, folder / ADAPTERS_FILE]
    return hashlib.sha256(" ".join(sha256(file) for file in files if file.exists()).encode()).hexdigest()


def check_kept(folder: Path, expected: str) -> None:
    """Raises `UserError` if the weights that a run kept in a folder are not those that it saved."""
    if expected and digest_kept(folder) != expected:
        raise UserError(
            f"{folder / MODEL_FOLDER} is damaged: its weights are not those that the run saved; pass --overwrite to "
            "make the run again, or choose another output"
        )


def load_weights(model: Model, model_directory: Path) -> None:
    """Sets a model's weights to those of a model directory of the same architecture and heads."""
    tensors = read_directory(model_directory).tensors
    for path, variable in model.weights_by_path().items():
        variable.assign(tensors[path])


def digest_directory(model_directory: str | os.PathLike[str]) -> str:
    """SHA-256 of a model directory's files, by name.

    Raises:
      UserError: it is no model directory.
    """
    folder = Path(model_directory)
    files = sorted(path for pattern in ("*.json", "*.safetensors", "*.txt") for path in folder.glob(pattern))
    if not files:
        raise UserError(
            f"the model must be a model directory with config.json and model.safetensors; received {folder}"
        )
    return hashlib.sha256("".join(f"{path.name} {sha256(path)}\n" for path in files).encode()).hexdigest()
