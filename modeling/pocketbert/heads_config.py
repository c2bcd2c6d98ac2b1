"""Several heads on one model: names, files, and shared parts with another model's heads."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from pocketbert.errors import UserError
from pocketbert_runtime.heads_config import HEAD_NAME


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


def files_by_head(value: str) -> dict[str, str] | None:
    """Returns each head's file in `HEAD=FILE,HEAD=FILE,…`; None for any other text, such as one file's path."""
    pairs = [part.partition("=") for part in value.split(",")]
    files = {name: file for name, _, file in pairs if HEAD_NAME.fullmatch(name) and file}
    return files if len(files) == len(pairs) > 1 else None


def files_in(value: str) -> list[str]:
    """Returns the paths in a file option's value: one for each head, or the only one."""
    return [*(files_by_head(value) or {"": value}).values()]


def with_decisions_of(task: Any, source: Any) -> Any:
    """Copies thresholds from a task with the same heads; None removes them."""
    task = dataclasses.replace(task, decisions=source and source.decisions)
    if not task.tasks:
        return task
    parts = zip(task.tasks, source.tasks if source else [None] * len(task.tasks), strict=True)
    return dataclasses.replace(task, tasks=tuple(with_decisions_of(part, of_source) for part, of_source in parts))


def has_decisions(task: Any) -> bool:
    """Whether the task, or one of several heads, has answer thresholds."""
    return any(part.decisions is not None for part in (task, *(task.tasks or ())))


def same_heads(one: Any, other: Any) -> bool:
    """Whether two tasks have equally ordered heads with the same names, kinds and labels."""
    heads = [[(part.name, part.kind, part.labels) for part in task.tasks or ()] for task in (one, other)]
    return heads[0] == heads[1]


def poolings(task: Any) -> tuple[Any, ...]:
    """Returns where a head reads the text, and where each of several does; see `TaskConfig.pooling`."""
    return task.pooling, *(part.pooling for part in task.tasks or ())


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
