"""The JSON schema of `bundle.json` (Draft 2020-12)."""

from __future__ import annotations

from typing import Any, get_args

from pocketbert.configs import TaskKind

SCHEMA_VERSION = 1

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


def _tensors(dtype: str) -> dict[str, Any]:
    return _list(_object(name=_TEXT, dtype={"const": dtype}))


def _by_name(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, "minProperties": 1}


def _task() -> dict[str, Any]:
    task = _object(kind={"enum": list(get_args(TaskKind))}, name=_TEXT, labels=_list(_TEXT, least=0))
    # Of spans where a question may have no answer.
    task["properties"]["null_threshold"] = {"type": "number"}
    return task


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "PocketBERT bundle",
    **_object(
        schema_version={"const": SCHEMA_VERSION},
        task={
            "oneOf": [
                {"type": "null"},
                _task(),
            ]
        },
        signatures=_list(_object(name=_TEXT, length=_COUNT)),
        inputs=_tensors("int32"),
        outputs=_tensors("float32"),
        tokenizer=_object(lowercase={"type": "boolean"}, vocab_size=_COUNT),
        recipe=_TEXT,
        runtimes=_list(_TEXT),
        lowerings=_by_name(_TEXT),
        num_parameters=_COUNT,
        source=_by_name(_DIGEST),
        tools=_by_name(_TEXT),
        files=_by_name(_object(sha256=_DIGEST, size_bytes=_COUNT)),
        goldens=_list(
            _object(
                text=_TEXT,
                pair={"type": ["string", "null"]},
                length=_COUNT,
                inputs=_by_name({"type": "array"}),
                outputs=_by_name({"type": "array"}),
                exported_outputs=_by_name({"type": "array"}),
            )
        ),
    ),
}
