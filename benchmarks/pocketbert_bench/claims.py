"""Bind an output folder to one run's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import read_json


def claim(path: Path, settings: dict[str, Any]) -> None:
    """Claims a folder for this run, or checks that it belongs to this run.

    Args:
      path: file for the settings, in the folder; created with its parents if missing.
      settings: all settings behind the folder's content, as JSON values.
    Raises:
      UserError: the folder belongs to a run with other settings.
    """
    if not path.exists():
        write_json(path, settings)
        return
    content = read_json(path)
    if content != settings:
        raise UserError(
            f"{path.parent} holds a run with {content}; received {settings}; choose another {argument('output')}"
        )
