"""The file that a trial leaves in its folder, and how the files of a run are read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.json_reading import parse_json, read_bytes
from pocketbert.notation import argument

RESULT_FILE = "result.json"


def read_record(path: Path, names: Collection[str] = ()) -> dict[str, Any]:
    """Reads a JSON object that a run wrote.

    Args:
      path: the file.
      names: names that the object must have, and no others; empty for any.

    Raises:
      UserError: the file is damaged.
    """
    try:
        content = parse_json(read_bytes(path), path)
    except UserError:
        content = None
    if not isinstance(content, dict) or (names and set(content) != set(names)):
        raise UserError(
            f"{path} is damaged: it must be unchanged since the run wrote it; pass {argument('overwrite', True)} to "
            "repeat the run, or choose another output"
        )
    return content


def read_result(path: Path) -> dict[str, Any]:
    """Reads the result of a run.

    Raises:
      UserError: the file is damaged.
    """
    result = read_record(path)
    metrics = result.get("metrics")
    if not isinstance(metrics, dict) or not isinstance(result.get("main_metric"), str | None):
        raise UserError(
            f"{path} is damaged: a result has main_metric and metrics; pass {argument('overwrite', True)} to make it "
            "again"
        )
    return result
