"""Dataclasses out of JSON values, checked against their annotations: one rule set for all manifests."""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from typing import Any, TypeVar

from pocketbert.errors import UserError

Kind = TypeVar("Kind")
# Annotation → (Python types of its JSON values, what to call them).
_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}
_CHARACTERS_SHOWN = 60


def from_json(kind: type[Kind], value: Any, where: str) -> Kind:
    """A dataclass out of the JSON object that `dataclasses.asdict` makes of it.

    Args:
      kind: the dataclass. Its fields may be strings, numbers, truth values, other dataclasses, tuples, lists and
        mappings of those, None, Literal and Any.
      value: what `parse_json` returned.
      where: what the value is, for example a file's path; it opens the message.

    Raises:
      UserError: a field is missing, unknown or of another type, or the dataclass refuses its values.
    """
    try:
        made: Kind = _read(kind, value, "it")
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    return made


def _read(kind: Any, value: Any, place: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _read(next(each for each in arguments if each is not type(None)), value, place)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool):
            raise _wrong(place, f"one of {', '.join(map(str, arguments))}", value)
        return value
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        return origin(_read(arguments[0], each, f"{place}[{number}]") for number, each in enumerate(value))
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, dict):
            raise _wrong(place, "an object", value)
        return {name: _read(arguments[1], each, f"{place}.{name[:_CHARACTERS_SHOWN]}") for name, each in value.items()}
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, place)
    accepted, called = _PLAIN[kind]
    if type(value) not in accepted:
        raise _wrong(place, called, value)
    return value


def _read_fields(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    missing = [name for name in names if name not in value]
    unknown = [name for name in value if name not in names]
    if missing or unknown:
        parts = [
            f"{what}: {_shown(', '.join(each))}" for what, each in (("missing", missing), ("unknown", unknown)) if each
        ]
        raise ValueError(f"{place} must have the fields {', '.join(names)}; {'; '.join(parts)}")
    inside = "" if place == "it" else f"{place}."
    return kind(**{name: _read(hints[name], value[name], inside + name) for name in names})


def _wrong(place: str, wanted: str, value: Any) -> ValueError:
    return ValueError(f"{place} must be {wanted}; received {_shown(repr(value))}")


def _shown(text: str) -> str:
    return text if len(text) <= _CHARACTERS_SHOWN else text[: _CHARACTERS_SHOWN - 1] + "…"
