"""Rules for models with several heads, and for the kind `several`, without TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.errors import UserError
from pocketbert.label_names import shown

# A head's name begins names of outputs and metrics, followed by an underscore.
_NAME = re.compile("[A-Za-z][A-Za-z0-9]*")
# With `_logits`, the first ones would be other tasks' outputs; the last ones are columns beside the answers.
_OTHER_NAMES = ("token", "start", "end", "prediction", "text", "pair", "id")


def head_names(tasks: Sequence[Any]) -> tuple[str, ...]:
    """Returns a model's head names: the kind, or the task's name if several heads have one kind.

    Raises:
      UserError: two heads would have the same name, or a required name is missing.
    """
    kinds = [task.kind for task in tasks]
    names = tuple(task.kind if kinds.count(task.kind) == 1 else task.name for task in tasks)
    if len(set(names)) != len(names) or not all(re.fullmatch(r"[\w-]+", name) for name in names):
        raise UserError(
            "tasks of one kind need names that differ, of letters, digits, '-' and '_', for example "
            f"TaskConfig(kind='classification', name='sst2', ...); received {', '.join(map(repr, names))}"
        )
    return names


def parts_of(values: Any, config: Any) -> tuple[Any, ...]:
    """Returns a `several` task's heads; objects with their fields, such as from JSON, become a `TaskConfig`.

    Args:
      values: a sequence of configurations or objects, or None.
      config: the class.
    Raises:
      UserError: a value is none of them, or has an unknown field.
    """
    parts = []
    for value in values or () if isinstance(values or (), list | tuple) else [values]:
        if isinstance(value, Mapping) and {"kind"} <= {*value} <= {*config.__dataclass_fields__}:
            value = config(**value)
        if not isinstance(value, config):
            raise UserError(f"tasks must be a list of heads, each with kind, name and labels; received {value!r:.80}")
        parts.append(value)
    return tuple(parts)


def files_by_head(value: str) -> dict[str, str] | None:
    """Returns each head's file in `HEAD=FILE,HEAD=FILE,…`; None for any other text, such as one file's path."""
    pairs = [part.partition("=") for part in value.split(",")]
    files = {name: file for name, _, file in pairs if _NAME.fullmatch(name) and file}
    return files if len(files) == len(pairs) > 1 else None


def files_in(value: str) -> list[str]:
    """Returns the paths in a file option's value: one for each head, or the only one."""
    return [*(files_by_head(value) or {"": value}).values()]


def part_kinds(rules: Mapping[str, Any]) -> list[str]:
    """Returns the kinds for a `several` task's heads, from `TASK_RULES`: an answer per text, or tags of words."""
    heads, files = ("sentence", "linear"), ("table", "spans")
    return [kind for kind, row in rules.items() if row.head in heads and row.reads in files]


def part_problems(parts: Sequence[Any], rules: Mapping[str, Any]) -> list[str]:
    """Returns problems with the heads, each a `TaskConfig`; `rules` is `TASK_RULES`."""
    names, kinds, problems = [part.name for part in parts], part_kinds(rules), []
    if len(parts) < 2:
        problems.append(f"several heads must be at least two; received {', '.join(names) or 'none'}")
    if wrong := [name for name in names if not _NAME.fullmatch(name) or name in _OTHER_NAMES]:
        problems.append(
            f"the name of a head must have letters and digits alone, and not be {', '.join(_OTHER_NAMES)}; received "
            f"{shown(wrong)}"
        )
    if len({name.casefold() for name in names}) < len(names):
        problems.append(f"heads must have different names; received {', '.join(names)}")
    if others := [part.kind for part in parts if part.kind not in kinds]:
        problems.append(f"the kind of a head must be one of {', '.join(kinds)}; received {', '.join(others)}")
    if pairs := [part.name for part in parts if part.pairs]:
        problems.append(f"several heads read single texts; received separate pairs for {', '.join(pairs)}")
    if parts and not any(loss_weight(part) for part in parts):
        problems.append("the loss of a head must have a weight above 0; received 0 for all of them")
    return problems


def weight_problems(weight: float | None) -> list[str]:
    """Returns problems with a loss weight."""
    if weight is None or 0 <= weight < math.inf:
        return []
    return [f"the weight of a head's loss must be a number of at least 0; received {weight}"]


def loss_weight(part: Any) -> float:
    """Returns the weight of a head's loss in the sum."""
    return 1.0 if part.weight is None else float(part.weight)


def described_heads(task: Any) -> str:
    """Describes a task's heads in a few words, such as `intent (classification: book, cancel)`; empty for one head."""
    described = [
        f"{part.name} ({part.kind}{': ' if part.labels else ''}{', '.join(part.labels)})" for part in _of(task)
    ]
    return ", ".join(described)


def without_labels(task: Any) -> str:
    """Names a kind without labels, or the heads without, such as `stars (regression)`; empty if all have some."""
    if not task.tasks:
        return "" if task.labels else task.kind
    return ", ".join(f"{part.name} ({part.kind})" for part in task.tasks if not part.labels)


def with_decisions_of(task: Any, source: Any) -> Any:
    """Copies thresholds from a task with the same heads; None removes them."""
    task = dataclasses.replace(task, decisions=source and source.decisions)
    if not task.tasks:
        return task
    parts = zip(task.tasks, source.tasks if source else [None] * len(task.tasks), strict=True)
    return dataclasses.replace(task, tasks=tuple(with_decisions_of(part, of_source) for part, of_source in parts))


def has_decisions(task: Any) -> bool:
    """Whether the task, or one of several heads, has answer thresholds."""
    return any(part.decisions is not None for part in (task, *_of(task)))


def same_heads(one: Any, other: Any) -> bool:
    """Whether two tasks have equally ordered heads with the same names, kinds and labels."""
    heads = [[(part.name, part.kind, part.labels) for part in _of(task)] for task in (one, other)]
    return heads[0] == heads[1]


def poolings(task: Any) -> tuple[Any, ...]:
    """Returns where a head reads the text, and where each of several does; see `TaskConfig.pooling`."""
    return task.pooling, *(part.pooling for part in _of(task))


def with_pooling(task: Any, pooling: str | None) -> Any:
    """Sets where a task's head reads the text; for several heads, sets each sentence head."""
    if not task.tasks:
        return dataclasses.replace(task, pooling=pooling)
    parts = [with_pooling(part, pooling) if part.rules.head == "sentence" else part for part in task.tasks]
    return dataclasses.replace(task, tasks=tuple(parts))


def with_poolings_of(task: Any, source: Any) -> Any:
    """Sets where a task's heads read the text, as in another task with the same heads."""
    task = dataclasses.replace(task, pooling=source.pooling)
    if not task.tasks:
        return task
    parts = zip(task.tasks, source.tasks, strict=True)
    return dataclasses.replace(task, tasks=tuple(with_poolings_of(part, of_source) for part, of_source in parts))


def _of(task: Any) -> Sequence[Any]:
    return task.tasks or ()
