"""A mark in a folder that got its name before the main output of its command, so that the command can be rerun."""

from __future__ import annotations

import os
from pathlib import Path

from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert_runtime.json_reading import parse_json

AHEAD = ".pocketbert.ahead"


def write_ahead(source: Path, target: Path, main: Path, main_folder: os.stat_result) -> None:
    """Marks a folder.

    Args:
      source: the folder.
      target: its name to be.
      main: the name of the main output to be.
      main_folder: the folder that will have this name.
    """
    identity = [main_folder.st_dev, main_folder.st_ino]
    write_json(source / AHEAD, {"main": os.path.relpath(main, target), "is": identity})


def is_ahead(path: Path, main: str | os.PathLike[str] | None) -> bool:
    """Whether a killed process placed this folder, but not `main`, which was to follow.

    If both have their names, removes the mark, which the process was about to do.
    """
    if main is None:
        return False
    try:
        record = parse_json((path / AHEAD).read_bytes(), path / AHEAD)
    except (OSError, UserError):
        return False
    real_path, folder = Path(os.path.realpath(main)), Path(os.path.realpath(path))
    if not isinstance(record, dict) or record.get("main") != os.path.relpath(real_path, folder):
        return False
    status = os.stat(real_path) if real_path.exists() else None
    if status is None or [status.st_dev, status.st_ino] != record.get("is"):
        return True
    (path / AHEAD).unlink()
    return False
