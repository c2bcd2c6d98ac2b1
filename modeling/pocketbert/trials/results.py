"""The file that a trial leaves in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketbert.json_reading import parse_json, read_bytes, read_members
from pocketbert.notation import argument

RESULT_FILE = "result.json"


def read_result(path: Path) -> dict[str, Any]:
    """Reads the result of a trial or of another run.

    Raises:
      UserError: the file is damaged.
    """
    where = f"{path} is damaged; pass {argument('overwrite', True)} to make it again"
    result: dict[str, Any] = parse_json(read_bytes(path), where)
    read_members(result, {"main_metric": str | None, "metrics": dict[str, Any]}, where)
    return result
