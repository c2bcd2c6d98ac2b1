"""An output folder belongs to one run's settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.files import write_json


def claim(path: Path, settings: dict[str, Any]) -> None:
    """Makes a folder this run's, or checks that it is.

    Args:
      path: the file in the folder that holds the settings; made with its parents if it is not there.
      settings: all that decides what the folder will hold, as JSON values.
    Raises:
      UserError: the folder is of a run with other settings.
    """
    if not path.exists():
        write_json(path, settings)
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    if found != settings:
        raise UserError(f"{path.parent} holds a run with {found}; received {settings}; choose another --output")
