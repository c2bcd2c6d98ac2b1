"""Marks a folder that got its name before its command's main output, so that you can rerun the command."""

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
      target: its future name.
      main: the main output's future name.
      main_folder: the main output's folder.
    """
    identity = [main_folder.st_dev, main_folder.st_ino]
    write_json(source / AHEAD, {"main": os.path.relpath(main, target), "is": identity})


def is_ahead(path: Path, main: str | os.PathLike[str] | None) -> bool:
    """Whether a killed process placed this folder, but not yet `main`.

    If both have their names, removes the mark in the process' place.
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
