"""config.json with our own `model_type`, for encoders without a class in transformers; see `huggingface`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.configs import CONFIG_PARTS, EncoderConfig, TaskConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.json_reading import has_type

OWN_PREFIX = "pocketbert_"
OWN_KEY = "pocketbert"
# For heads without a class in transformers.
_CLASS_PREFIX = "PocketBert"


def own_config(config: EncoderConfig, tasks: Sequence[TaskConfig]) -> dict[str, Any]:
    """Returns a config.json's content with our own `model_type`."""
    encoder = dataclasses.asdict(config)
    names = [
        f"{_CLASS_PREFIX}{'Pair' if task.pairs else ''}{'Mean' if task.pooling else ''}{task.rules.architecture}"
        for task in tasks
        if task.pooling or task.pairs
    ]
    return {
        **({"architectures": names} if names else {}),
        "model_type": OWN_PREFIX + encoder.pop("model_type"),
        "torch_dtype": "float32",
        OWN_KEY: {"encoder": encoder, "tasks": [task_values(task) for task in tasks]},
    }


def task_values(task: TaskConfig) -> dict[str, Any]:
    """Converts a task to a JSON object."""
    values = dataclasses.asdict(task) | {"labels": list(task.labels)}
    return {name: value for name, value in values.items() if value is not None}


def read_own(content: Mapping[str, Any]) -> tuple[EncoderConfig, tuple[TaskConfig, ...]]:
    """Reverses `own_config`; raises `UserError` with all unknown and missing keys and all invalid values."""
    unknown = set(content) - {"architectures", "model_type", OWN_KEY, "torch_dtype", "dtype", "transformers_version"}
    problems = [f"key {key!r} is unknown and may change the outputs of the model" for key in sorted(unknown)]
    block = own_block(content, {"encoder", "tasks"}, problems)
    encoder = block.get("encoder", {})
    if not isinstance(encoder, dict):
        raise UserError(f"config.json: {OWN_KEY}.encoder must be an object; received {encoder!r}")
    encoder = encoder | {"model_type": content["model_type"].removeprefix(OWN_PREFIX)}
    for name, part in CONFIG_PARTS.items():
        if encoder.get(name) is not None:
            encoder[name] = _dataclass(part, encoder[name], problems)
    config = _dataclass(EncoderConfig, encoder, problems)
    tasks = own_tasks(block.get("tasks", []), problems)
    raise_if_any(problems, "config.json")
    return config, tasks


def own_block(content: Mapping[str, Any], allowed: set[str], problems: list[str]) -> Mapping[str, Any]:
    """Our key's value, if it is an object with keys from `allowed`."""
    block = content.get(OWN_KEY, {})
    if not isinstance(block, dict) or not set(block) <= allowed:
        problems.append(f"{OWN_KEY} must be an object with {', '.join(sorted(allowed))}; received {block!r}")
        return {}
    return block


def own_tasks(items: object, problems: list[str]) -> tuple[TaskConfig, ...]:
    """Restores the tasks from `task_values`."""
    if not isinstance(items, list):
        problems.append(f"{OWN_KEY}.tasks must be a list; received {items!r}")
        return ()
    tasks = []
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("labels"), list):
            item = item | {"labels": tuple(item["labels"])}
        tasks.append(_dataclass(TaskConfig, item, problems))
    return tuple(task for task in tasks if task is not None)


def _dataclass(cls: type, values: object, problems: list[str]) -> Any:
    """Makes a configuration, or adds its problems. Only fields with the default None may be missing."""
    if not isinstance(values, dict):
        problems.append(f"{cls.__name__} must be an object; received {values!r}")
        return None
    fields = {field.name: field.type for field in dataclasses.fields(cls)}
    optional = {field.name for field in dataclasses.fields(cls) if field.default is None}
    wrong = [f"{cls.__name__}.{name} is missing" for name in fields if name not in {*values, *optional}]
    wrong += [f"{cls.__name__}.{name} is unknown" for name in values if name not in fields]
    for name, kind in {"int": int, "float": float, "bool": bool}.items():
        for field, annotation in fields.items():
            types = str(annotation).split(" | ")
            is_left_out = "None" in types and values.get(field) is None
            if name in types and field in values and not is_left_out and not has_type(values[field], kind):
                wrong.append(f"{cls.__name__}.{field} must be of type {name}; received {values[field]!r}")
    problems += wrong
    if wrong:
        return None
    try:
        return cls(**values)
    except UserError as error:
        problems.append(str(error))
        return None
