"""The folder of a run, so that killing the run at any moment costs time and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.files import PARTIAL, write_json
from pocketbert.json_reading import parse_json
from pocketbert.outputs import RUN_KIND, check_no_foreign, held_directory, remove

OPTIONS_FILE = "run.json"
# The command line with all options, for `--config`.
COMMAND_FILE = "run.toml"
RESULT_FILE = "result.json"
CHECKPOINT_FILE = "checkpoint.safetensors"
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
    COMMAND_FILE,
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
# What an atomic writer leaves of these when it is killed; safetensors has a name of its own.
_ASIDE = (*(f".{name}.{PARTIAL}" for name in RUN_FILES), ".tmp??????", f"{STAGES_FOLDER}/*/.*")
# A run that is replaced: while it is moved, and once it is.
_MOVING, _REPLACED = ".moving", ".replaced"


@contextlib.contextmanager
def open_run(output: str | os.PathLike[str], options: Mapping[str, Any], *, overwrite: bool) -> Iterator[Path]:
    """Takes a run's folder for this process: a new one, or one in which the same run stopped or finished.

    Args:
      output: the folder.
      options: all that decides the run's result, as JSON values; the caller gives them to `begin_run`.
      overwrite: throw away a finished run, or one with other options, once `begin_run` is called.

    Yields:
      The folder. If an error leaves nothing in it, it goes again.

    Raises:
      UserError: the folder holds a run with other options, something that is no run, or another process has it.
    """
    with held_directory(output, RUN_KIND, RUN_FILES) as folder:
        _end_replacing(folder)
        for pattern in _ASIDE:
            _remove(folder.glob(pattern))
        difference = _difference(folder, json.loads(json.dumps(options)), overwrite=overwrite)
        finished = (folder / RESULT_FILE).exists()
        if overwrite and (difference or finished):
            check_no_foreign(folder, RUN_FILES)
            _set_aside(folder)
        elif difference:
            raise UserError(
                f"{folder} holds {'a finished' if finished else 'an unfinished'} run with other options: {difference}; "
                "repeat its options, choose another output, or pass --overwrite"
            )
        try:
            yield folder
        finally:
            _end_replacing(folder)


def begin_run(folder: Path, options: Mapping[str, Any]) -> None:
    """Records a run's options, once nothing was found wrong with its input; what it replaces is removed now."""
    write_json(folder / OPTIONS_FILE, options)
    _end_replacing(folder)


def clear_run(folder: Path) -> None:
    """Removes everything of a run but the folder's marker; if nothing is put there, `open_run` removes the folder."""
    _remove(folder / name for name in RUN_FILES)


def read_record(path: Path) -> dict[str, Any]:
    """A JSON object that a run wrote.

    Raises:
      UserError: it is damaged.
    """
    try:
        content = parse_json(path.read_bytes(), path)
    except UserError:
        content = None
    if not isinstance(content, dict):
        raise UserError(
            f"{path} is damaged: it must be as the run wrote it; pass --overwrite to make the run again, or choose "
            "another output"
        )
    return content


def read_result(path: Path) -> dict[str, Any]:
    """A run's result.

    Raises:
      UserError: it is damaged.
    """
    result = read_record(path)
    metrics = result.get("metrics")
    if not isinstance(metrics, dict) or not isinstance(result.get("main_metric"), str | None):
        raise UserError(f"{path} is damaged: a result has main_metric and metrics; pass --overwrite to make it again")
    return result


def _set_aside(folder: Path) -> None:
    """Moves a run into a folder in its own, from where `_end_replacing` can bring it back."""
    moving = folder / _MOVING
    moving.mkdir()
    for name in RUN_FILES:
        if os.path.lexists(folder / name):
            os.replace(folder / name, moving / name)
    os.replace(moving, folder / _REPLACED)


def _end_replacing(folder: Path) -> None:
    """Removes a run that was moved aside, if the one that replaces it has begun; else brings it back."""
    moving, replaced = folder / _MOVING, folder / _REPLACED
    if not (moving.exists() or replaced.exists()):
        return
    if replaced.exists() and (folder / OPTIONS_FILE).exists():
        shutil.rmtree(replaced)
        return
    if replaced.exists():
        clear_run(folder)
        os.replace(replaced, moving)
    for name in os.listdir(moving):
        os.replace(moving / name, folder / name)
    moving.rmdir()


def _difference(folder: Path, received: Mapping[str, Any], *, overwrite: bool) -> str:
    if not (folder / OPTIONS_FILE).exists():
        return ""
    try:
        recorded = read_record(folder / OPTIONS_FILE)
    except UserError as error:
        if not overwrite:
            raise
        return str(error)
    return ", ".join(
        f"{name}={recorded.get(name)!r}, received {received.get(name)!r}"
        for name in sorted({*recorded, *received})
        if recorded.get(name) != received.get(name)
    )


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        remove(path)
