"""Reads text files. Errors name the file, the line and the reason."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_runtime.json_reading import parse_json

PROBLEMS_SHOWN = 5
_CHARACTERS_SHOWN = 60

# A row's number, and its cells by column, or a message if the row cannot be read.
Row: TypeAlias = tuple[int, dict[str, str] | str]


def read_utf8(path: str | os.PathLike[str]) -> str:
    """Reads a UTF-8 file, without its byte-order mark. Raises `UserError` if it is missing, empty or not UTF-8."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read ({error.strerror}); check the path") from error
    if not content.strip():
        raise UserError(f"{path}: the file is empty; it must have at least one row")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The codec does not count a byte-order mark.
        start = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        line = content.count(b"\n", 0, start) + 1
        raise UserError(
            f"{path}: line {line}: the text must be UTF-8; received byte 0x{content[start]:02x}; save the file as UTF-8"
        ) from error


def tsv_rows(text: str) -> list[tuple[int, list[str]]]:
    """Splits tab-separated text into (line number from 1, cells), without empty lines. Quotes are plain characters.

    Only a newline ends a row: `str.splitlines` would also split at U+0085, U+2028 and others, which texts contain.
    """
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [(number, line.split("\t")) for number, line in enumerate(lines, start=1) if line]


def json_object(line: str) -> dict[str, Any]:
    """Reads one JSONL line. Raises `ValueError` if it is not a JSON object."""
    row = parse_json(line, "the line")
    if not isinstance(row, dict):
        raise ValueError(f"the line must be one JSON object; received {type(row).__name__}")
    return row


class RowProblems:
    """Collects problems with rows, to report them in one error; `unit` is `line` or `row`, whichever numbers count."""

    def __init__(self, source: str | os.PathLike[str], unit: str = "line") -> None:
        self._source, self._unit = source, unit
        self._found: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, line: int, reason: str) -> None:
        """Adds a problem with row number `line`."""
        self._found.append(f"{self._unit} {line}: {reason}")

    def raise_if_any(self) -> None:
        """Raises a `UserError` with the first problems and the number of further ones."""
        if self._found:
            raise UserError(f"{self._source}: {self._listed()}")

    def log_skipped(self, count: int) -> None:
        """Logs how many of `count` rows are skipped, and why."""
        log_info(f"{self._source}: skipped {len(self)} of {count} rows; {self._listed()}")

    def _listed(self) -> str:
        more = len(self._found) - PROBLEMS_SHOWN
        return "; ".join([*self._found[:PROBLEMS_SHOWN], *[f"and {more} more rows"] * (more > 0)])


def shown(value: object) -> str:
    """Formats a value for a message: one line, shortened."""
    text = repr(value)
    return text if len(text) <= _CHARACTERS_SHOWN else text[: _CHARACTERS_SHOWN - 1] + "…"


def parse_score(text: str) -> float:
    """Reads a regression label. Raises `ValueError` if `text` is not a finite decimal number."""
    # Python would also read 1_0 and digits of other scripts.
    score = float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) else float("nan")
    if not -3.0e38 < score < 3.0e38:
        raise ValueError(f"the score must be a finite number; received {shown(text)}")
    return score


def listed(names: Iterable[str]) -> str:
    """Formats names for a message."""
    return ", ".join(map(shown, names))[:200] or "none"


def json_text(value: object) -> str:
    """Formats a JSON value as a cell: null as an empty one, 1.0 as 1."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)
