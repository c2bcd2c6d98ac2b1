"""What a run leaves on disk, so that killing it at any moment costs time and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
import tensorflow as tf
from safetensors import safe_open
from safetensors.numpy import save_file

from pocketbert.checkpoints.directory import read_directory
from pocketbert.data.examples import Examples
from pocketbert.data.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.files import sha256
from pocketbert.model import Model
from pocketbert.training.optimizers import NamedOptimizer

OPTIONS_FILE = "run.json"
RESULT_FILE = "result.json"
CHECKPOINT_FILE = "checkpoint.safetensors"
LOCK_FILE = ".lock"
LOG_FILE = "metrics.jsonl"
TENSORBOARD_FOLDER = "tensorboard"
MODEL_FOLDER = "model"
STAGES_FOLDER = "stages"
ADAPTERS_FILE = "adapters.safetensors"
TEACHER_FILE = "teacher.json"
PARTS_FOLDER = "parts"
GRID_FOLDER = "runs"
REPORT_FILE = "report.html"
FINE_TUNED_FOLDER = "fine_tuned"
COMPARISON_FILE = "comparison.json"
RUN_FILES = (
    OPTIONS_FILE,
    RESULT_FILE,
    CHECKPOINT_FILE,
    LOG_FILE,
    TENSORBOARD_FOLDER,
    MODEL_FOLDER,
    STAGES_FOLDER,
    ADAPTERS_FILE,
    TEACHER_FILE,
    PARTS_FOLDER,
    GRID_FOLDER,
    REPORT_FILE,
    FINE_TUNED_FOLDER,
    COMPARISON_FILE,
)
# What an atomic writer leaves of these when it is killed.
_ASIDE = (*(f".{name}.*" for name in RUN_FILES), f"{STAGES_FOLDER}/*/.*")
_POSITION_KEY = "position"


@dataclasses.dataclass
class Position:
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

    def summary(self) -> dict[str, Any]:
        """What a result says of the stage at hand."""
        return {"steps": self.step - self.first_step, "metrics": self.best_metrics, "best_step": self.best_step}

    def next_stage(self) -> Position:
        """Where the run stands as the following stage begins."""
        return Position(
            step=self.step,
            log_bytes=self.log_bytes,
            seconds=self.seconds,
            stage=self.stage + 1,
            first_step=self.step,
            past=[*self.past, self.summary()],
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


def write_checkpoint(path: Path, variables: Mapping[str, tf.Variable], position: Position) -> None:
    """Writes all into one file, aside, and renames it over the previous one.

    Args:
      path: the file.
      variables: as `training_variables` gives them.
      position: where the run stands.
    """
    # One name for the file aside: what a killed run leaves of it, the next one overwrites.
    aside = path.with_name(f".{path.name}.partial")
    arrays = {name: np.asarray(variable.numpy()) for name, variable in variables.items()}
    save_file(arrays, aside, metadata={_POSITION_KEY: json.dumps(dataclasses.asdict(position))})
    with open(aside, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(aside, path)


def read_position(path: Path) -> Position | None:
    """Where the run stood when `write_checkpoint` wrote a file, or None if there is no such file."""
    if not path.exists():
        return None
    with safe_open(path, framework="numpy") as stored:
        return Position(**json.loads(stored.metadata()[_POSITION_KEY]))


def read_arrays(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint whose names begin with `prefix`: name without it → array."""
    with safe_open(path, framework="numpy") as stored:
        return {name.removeprefix(prefix): stored.get_tensor(name) for name in stored.keys() if name.startswith(prefix)}


def read_checkpoint(path: Path, variables: Mapping[str, tf.Variable]) -> Position | None:
    """Sets all variables to what `write_checkpoint` wrote.

    Args:
      path: the file.
      variables: as `training_variables` gives them, of a model and an optimizer of the same kind.

    Returns:
      Where the run stood, or None if there is no such file (nothing is set then).

    Raises:
      UserError: the file holds other variables.
    """
    if not path.exists():
        return None
    with safe_open(path, framework="numpy") as stored:
        names = set(stored.keys())
        different = sorted(names ^ set(variables))
        if different:
            raise UserError(
                f"{path}: the checkpoint must hold this run's variables; {len(different)} are on one side only "
                f"({', '.join(different[:3])}…); remove the run or choose another output"
            )
        position = Position(**json.loads(stored.metadata()[_POSITION_KEY]))
        for name, variable in variables.items():
            variable.assign(stored.get_tensor(name))
    return position


def load_weights(model: Model, model_directory: Path) -> None:
    """Sets a model's weights to those of a model directory of the same architecture and heads."""
    tensors = read_directory(model_directory).tensors
    for path, variable in model.weights_by_path().items():
        variable.assign(tensors[path])


def describe_inputs(
    model_directory: str | os.PathLike[str], train: Examples | QuestionFile, dev: Examples | QuestionFile
) -> dict[str, str]:
    """SHA-256 of what a run is made from, so that a resumed run notices when it has changed.

    Args:
      model_directory: the folder with the initial weights.
      train: the training examples.
      dev: the examples that choose the best checkpoint.

    Returns:
      `model`, `train` and `dev` → hexadecimal digest.
    """
    return {"model": digest_directory(model_directory), "train": digest_examples(train), "dev": digest_examples(dev)}


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


def digest_examples(examples: Examples | QuestionFile) -> str:
    """SHA-256 of examples' texts, labels and, where they have any, groups, or of a file of questions."""
    if isinstance(examples, QuestionFile):
        return examples.identity
    digest = hashlib.sha256()
    for part in (examples.texts, examples.pairs):
        digest.update(json.dumps(part).encode())
    if examples.labels is not None:
        digest.update(examples.labels.tobytes())
    if examples.groups is not None:
        digest.update(json.dumps(examples.groups).encode())
    return digest.hexdigest()


@contextlib.contextmanager
def open_run(output: str | os.PathLike[str], options: Mapping[str, Any], *, overwrite: bool) -> Iterator[Path]:
    """Takes a run's folder for this process: a new one, or one in which the same run stopped or finished.

    Args:
      output: the folder.
      options: all that decides the run's result, as JSON values; the caller writes them to `OPTIONS_FILE`.
      overwrite: throw away a finished run, or one with other options.

    Yields:
      The folder. If an error leaves nothing in it, it goes again.

    Raises:
      UserError: the folder holds a run with other options, something that is no run, or another process has it.
    """
    folder = Path(output)
    _check_is_run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK_FILE, "w") as lock:
        _lock(lock, folder)
        try:
            for pattern in _ASIDE:
                _remove(folder.glob(pattern))
            difference = _difference(folder, json.loads(json.dumps(options)))
            if overwrite and (difference or (folder / RESULT_FILE).exists()):
                clear_run(folder)
            elif difference:
                state = "a finished" if (folder / RESULT_FILE).exists() else "an unfinished"
                raise UserError(
                    f"{folder} holds {state} run with other options: {difference}; repeat its options, choose another "
                    "output, or pass --overwrite"
                )
            yield folder
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK_FILE]:
                (folder / LOCK_FILE).unlink()
                folder.rmdir()


def clear_run(folder: Path) -> None:
    """Removes everything of a run but its lock; if nothing is put there, `open_run` removes the folder."""
    _remove(folder / name for name in RUN_FILES)


def _lock(stream: TextIO, folder: Path) -> None:
    try:
        # The kernel gives it back when the process ends, however it ends.
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"one process at a time may work in a folder; another has {folder}; wait for it, or choose another output"
        ) from None


def _check_is_run(folder: Path) -> None:
    if folder.is_dir():
        ours = (folder / OPTIONS_FILE).exists() or not any(
            path.name != LOCK_FILE and not any(path.match(pattern) for pattern in _ASIDE) for path in folder.iterdir()
        )
    else:
        ours = not folder.exists()
    if not ours:
        raise UserError(
            f"the output must be a new folder or one that holds a run; received {folder}, which holds something else; "
            "choose another"
        )


def _difference(folder: Path, received: Mapping[str, Any]) -> str:
    if not (folder / OPTIONS_FILE).exists():
        return ""
    recorded = json.loads((folder / OPTIONS_FILE).read_text("utf-8"))
    return ", ".join(
        f"{name}={recorded.get(name)!r}, received {received.get(name)!r}"
        for name in sorted({*recorded, *received})
        if recorded.get(name) != received.get(name)
    )


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
