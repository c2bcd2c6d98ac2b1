"""Reads untrusted JSON: bounds size, depth and numbers, and checks types."""

from __future__ import annotations

import collections.abc
import dataclasses
import itertools
import json
import math
import os
import re
import stat
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pocketbert_runtime.errors import UserError

MOST_BYTES = 1 << 26
MOST_DEPTH = 64
# transformers writes 10**30 for an unlimited length; a float64 needs 17 digits.
MOST_DIGITS = 100
# Other modules store whole numbers as int64.
_MOST_WHOLE = 1 << 63

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")

Kind = TypeVar("Kind")
# Annotation → (Python types of its JSON values, name in messages).
_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}
_CHARACTERS_SHOWN = 60


def parse_json(
    content: str | bytes,
    where: str | os.PathLike[str],
    *,
    most_bytes: int = MOST_BYTES,
    most_depth: int = MOST_DEPTH,
    half_pairs: bool = False,
) -> Any:
    """Parses one untrusted JSON value in linear time.

    Args:
      content: the text, or its UTF-8 bytes.
      where: start of error messages, for example a path or "line 3 of data.jsonl".
      most_bytes: maximum size. Parsing needs about 20 bytes of memory per byte.
      most_depth: maximum nesting of arrays and objects.
      half_pairs: accept lone surrogates, which tokenizers drop.
    Returns:
      The result of `json.loads`. All numbers are finite, and all strings can be encoded as UTF-8.
    Raises:
      UserError: the content is not JSON, not UTF-8, too large or too deep, or a number is too long or not finite. The
        message is one line.
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
    # Checked before parsing: the parser recurses in C up to the recursion limit.
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    depth = max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
    if depth > most_depth:
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
    """Reads a JSON file as `parse_json`; `where` starts error messages, if not the path.

    Raises:
      UserError: see `parse_json`; or the file cannot be read.
    """
    content = read_bytes(path, where=where, most_bytes=most_bytes)
    return parse_json(content, where or path, most_bytes=most_bytes, most_depth=most_depth)


def read_bytes(path: str | os.PathLike[str], *, where: str | None = None, most_bytes: int = MOST_BYTES) -> bytes:
    """Reads a plain file; other files, such as devices and pipes, may have no end.

    Args:
      path: the file.
      where: start of error messages, if not the path.
      most_bytes: maximum size.
    Raises:
      UserError: the file cannot be read, is no plain file or is too large.
    """
    try:
        is_plain = stat.S_ISREG(os.stat(path).st_mode)
        content = b""
        if is_plain:
            with Path(path).open("rb") as stream:
                content = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        # A name with a null character is a ValueError.
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{where or path}: the file cannot be read ({reason}); check the path") from None
    if not is_plain:
        kind = "a folder" if os.path.isdir(path) else "a device or a pipe"
        raise UserError(
            f"{where or path}: the file cannot be read (it must be a plain file; it is {kind}); check the path"
        )
    if len(content) > most_bytes:
        raise UserError(f"{where or path}: a file here has at most {most_bytes:,} bytes; received more; check the file")
    return content


class _NumberError(Exception):
    """A number that JSON allows and this module refuses."""


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


def from_json(kind: type[Kind], value: Any, where: str) -> Kind:
    """Converts a JSON object to a dataclass; the inverse of `dataclasses.asdict`.

    Args:
      kind: the dataclass. Its fields can be strings, numbers, bools, dataclasses, tuples, lists and mappings of these,
        None, Literal and Any.
      value: from `parse_json`.
      where: start of error messages, for example a path.
    Raises:
      UserError: a field is missing, unknown or has a wrong type, or the dataclass rejects its values.
    """
    try:
        result: Kind = _read(kind, value, "it")
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    return result


def read_members(value: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Reads some members of a JSON object, name → value; None for a missing member. It may have others.

    Args:
      value: from `parse_json`.
      kinds: name → type, as for the fields in `from_json`. With a type that allows None, the member may be missing.
      where: start of error messages, for example a path.
    Raises:
      UserError: the value is not an object, or a member is missing or has a wrong type.
    """
    try:
        if not isinstance(value, dict):
            raise _wrong("it", "an object", value)
        return {name: _read(kind, value.get(name), name) for name, kind in kinds.items()}
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _read(next(argument for argument in arguments if argument is not type(None)), value, where)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool):
            raise _wrong(where, f"one of {', '.join(map(str, arguments))}", value)
        return value
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return origin(_read(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return {name: _read(arguments[1], item, f"{where}.{name[:_CHARACTERS_SHOWN]}") for name, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    accepted, called = _PLAIN[kind]
    if type(value) not in accepted or (kind is int and abs(value) >= _MOST_WHOLE):
        raise _wrong(where, called, value)
    return value


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    missing = [name for name in names if name not in value]
    unknown = [name for name in value if name not in names]
    if missing or unknown:
        parts = [
            f"{what}: {_shown(', '.join(fields))}"
            for what, fields in (("missing", missing), ("unknown", unknown))
            if fields
        ]
        raise ValueError(f"{where} must have the fields {', '.join(names)}; {'; '.join(parts)}")
    inside = "" if where == "it" else f"{where}."
    return kind(**{name: _read(hints[name], value[name], inside + name) for name in names})


def _wrong(where: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"{where} must be {expected}; received {_shown(repr(value))}")


def _shown(text: str) -> str:
    return text if len(text) <= _CHARACTERS_SHOWN else text[: _CHARACTERS_SHOWN - 1] + "…"
