"""Reads the keys in model configurations, and TOML; `pocketbert_runtime.json_reading` parses JSON."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert_runtime.json_reading import read_bytes, read_json

_MOST_TOML_BYTES = 1 << 20

# Default of a required key.
REQUIRED = object()


def read_toml(path: str | os.PathLike[str], *, where: str | None = None) -> dict[str, Any]:
    """Reads a TOML file; raises a one-line `UserError` if it cannot be read, or is not TOML."""
    content = read_bytes(path, where=where, most_bytes=_MOST_TOML_BYTES)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        reason = "arrays or tables that nest too deeply"
    except ValueError as error:
        # From the parser, UTF-8, or an integer with thousands of digits.
        reason = " ".join(str(error).split())[:200]
    raise UserError(f"{where or path}: this must be a TOML file; received {reason}; correct the file")


def read_json_object(path: Path, problems: list[str], *, required: bool) -> dict[str, Any] | None:
    """Reads a folder's JSON object; None with the reason in `problems`."""
    if not path.exists():
        if required:
            problems.append(f"the folder must hold {path.name}; received a folder without it")
        return None
    try:
        content = read_json(path, where=path.name)
    except UserError as error:
        problems.append(str(error))
        return None
    if not isinstance(content, dict):
        problems.append(f"{path.name} must be a JSON object; received {type(content).__name__}")
        return None
    return content


def read_values(
    content: Mapping[str, Any],
    keys: Mapping[str, tuple[type, object]],
    *,
    fixed: Mapping[str, object],
    known: Collection[str],
    problems: list[str],
) -> dict[str, Any]:
    """Reads known keys' values from a model configuration, except keys that have a problem.

    Args:
      content: the parsed object.
      keys: key → type and default, or `REQUIRED`.
      fixed: keys that change the mathematics → the only supported value.
      known: further keys to accept.
      problems: receives one problem per unknown or missing key and wrong value.
    """
    for key in sorted(set(content) - set(keys) - set(fixed) - set(known)):
        problems.append(f"key {key!r} is unknown and may change the outputs of the model; remove it if it does not")
    for key, required in fixed.items():
        if key in content and content[key] != required:
            problems.append(f"{key} must be {required!r}; received {content[key]!r}")
    values: dict[str, Any] = {}
    for key, (kind, default) in keys.items():
        value = content.get(key, default)
        if value is REQUIRED:
            problems.append(f"key {key!r} is missing")
        elif not has_type(value, kind):
            problems.append(f"{key} must be of type {kind.__name__}; received {value!r}")
        else:
            values[key] = value
    return values


def has_type(value: object, kind: type) -> bool:
    """Whether a JSON value has type `kind`. An integer counts as a float; a bool does not count as a number."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
