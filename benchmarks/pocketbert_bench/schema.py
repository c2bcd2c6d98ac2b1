"""JSON Schema, and a documentation page, from frozen dataclasses.

Supported field types: str, int, float, bool, None, `Literal`, unions, `tuple[X, ...]`, `dict[str, X]` and further such
dataclasses.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal


def note(description: str, **constraints: Any) -> Any:
    """Declares a dataclass field with its description and JSON Schema keywords to narrow its type."""
    return dataclasses.field(metadata={"description": description, **constraints})


def optional_note(description: str, **constraints: Any) -> Any:
    """Declares a field as `note` does, but optional in files; leaving it out is the same as null."""
    return dataclasses.field(default=None, metadata={"description": description, **constraints})


def schema(kind: type, title: str) -> dict[str, Any]:
    """Returns a dataclass's JSON Schema (2020-12): fields without a default are required, and no others allowed."""
    definitions: dict[str, Any] = {}
    root = _schema_of(kind, definitions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **root, "$defs": definitions}


def from_json(kind: Any, value: Any) -> Any:
    """Converts JSON values that satisfy `schema(kind)` to an instance of `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else from_json(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        return tuple(from_json(arguments[0], item) for item in value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return typing.cast(Any, kind)(**{name: from_json(hints[name], item) for name, item in value.items()})
    return float(value) if kind is float else value


def page(kind: type, title: str) -> str:
    """Writes a Markdown page with a field table for each dataclass in `kind`, `kind` first."""
    rule = "All fields are required unless marked optional; unknown values are null or empty."
    lines = [f"# {title}", "", rule, ""]
    for name, definition in schema(kind, title)["$defs"].items():
        lines += [f"## {name}", "", definition["description"], "", "| field | type | meaning |", "|---|---|---|"]
        for field, entry in definition["properties"].items():
            optional = "" if field in definition["required"] else "optional; "
            lines.append(f"| `{field}` | {_type_in_words(entry)} | {optional}{entry['description']} |")
        lines.append("")
    return "\n".join(lines)


def _type_in_words(entry: dict[str, Any]) -> str:
    if "anyOf" in entry:
        return " or ".join(_type_in_words(choice) for choice in entry["anyOf"])
    if "enum" in entry:
        return ", ".join(f"`{choice}`" for choice in entry["enum"])
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if entry["type"] == "array":
        return f"list of {_type_in_words(entry['items'])}"
    if entry["type"] == "object":
        return f"names to {_type_in_words(entry['additionalProperties'])}"
    return str(entry["type"])


def _schema_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_schema_of(argument, definitions) for argument in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    if dataclasses.is_dataclass(kind):
        name = typing.cast(type, kind).__name__
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _object_schema(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}[kind]}


def _object_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        properties[field.name] = {**_schema_of(hints[field.name], definitions), **field.metadata}
    return {
        "type": "object",
        "description": (kind.__doc__ or "").splitlines()[0],
        "properties": properties,
        "required": [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING],
        "additionalProperties": False,
    }
