"""JSON from outside: Python's parser behind bounds on size, depth and numbers."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError

MOST_BYTES = 1 << 26
MOST_DEPTH = 64
# transformers writes 10**30 for a length without limit; a float64 needs 17 digits.
MOST_DIGITS = 100

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")


def parse_json(
    content: str | bytes,
    where: str | os.PathLike[str],
    *,
    most_bytes: int = MOST_BYTES,
    most_depth: int = MOST_DEPTH,
    half_pairs: bool = False,
) -> Any:
    """Parses one JSON value of untrusted origin, in time linear in its size.

    Args:
      content: the text, or its UTF-8 bytes.
      where: what the content is, for example a file's path or "line 3 of data.jsonl"; it opens the message.
      most_bytes: largest size accepted. Count on about 20 bytes of memory for each.
      most_depth: deepest nesting of arrays and objects accepted.
      half_pairs: accept halves of surrogate pairs too, which tokenizers leave out.
    Returns:
      What `json.loads` returns. Every number is finite, and every string can be written as UTF-8.
    Raises:
      UserError: the content is not JSON, not UTF-8, too large, too deep, or has a number that is too long or not
        finite. The message is one line.
    """
    if len(content) > most_bytes:
        raise UserError(f"{where}: JSON here has at most {most_bytes:,} bytes; received more; check the file")
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: JSON must be UTF-8; received byte 0x{content[error.start]:02x} at offset {error.start}; "  # type: ignore[str-bytes-safe]
            "convert the file to UTF-8"
        ) from None
    # Before the parser: it recurses, in C, as deep as the recursion limit lets it.
    if _depth(text) > most_depth:
        raise UserError(f"{where}: JSON here nests at most {most_depth} levels deep; received more; check the file")
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_constant)
        if "\\u" in text and not half_pairs:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise UserError(
            f"{where}: a JSON string must be Unicode text; received half a surrogate pair, \\u{code:04x}; "
            "write the character as UTF-8"
        ) from None
    except _NumberError as error:
        raise UserError(f"{where}: {error}") from None
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " * ("\n" in text.strip())
        raise UserError(
            f"{where}: this must be JSON; received a syntax error in {line}column {error.colno} ({error.msg}); correct "
            "it there"
        ) from None
    return value


def read_json(
    path: str | os.PathLike[str],
    *,
    where: str | None = None,
    most_bytes: int = MOST_BYTES,
    most_depth: int = MOST_DEPTH,
) -> Any:
    """Reads a JSON file as `parse_json` does; no more than `most_bytes` are read.

    Args:
      path: the file.
      where: what opens the message, if not the path.
      most_bytes: as `parse_json`.
      most_depth: as `parse_json`.
    Raises:
      UserError: as `parse_json`, or the file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except OSError as error:
        raise UserError(f"{where or path}: the file cannot be read ({error.strerror}); check the path") from None
    return parse_json(content, where or path, most_bytes=most_bytes, most_depth=most_depth)


class _NumberError(Exception):
    """A number that is JSON's grammar but not ours."""


def _depth(text: str) -> int:
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    return max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)


def _integer(text: str) -> int:
    return int(_short(text))


def _float(text: str) -> float:
    value = float(_short(text))
    if not math.isfinite(value):
        raise _NumberError(f"a number must fit in 64-bit floating point; received {text}; write a smaller one")
    return value


def _constant(text: str) -> float:
    raise _NumberError(f"a number must be finite; received {text}, which is not JSON; write a number or null")


def _short(text: str) -> str:
    if len(text) > MOST_DIGITS:
        raise _NumberError(
            f"a number has at most {MOST_DIGITS} digits; received one of {len(text):,}; write a shorter one"
        )
    return text
