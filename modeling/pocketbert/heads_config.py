"""The heads of a model with several: their names, files, and what they share with those of another model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from pocketbert.errors import UserError
from pocketbert_runtime.heads_config import HEAD_NAME


def head_names(tasks: Sequence[Any]) -> tuple[str, ...]:
    """Names of a model's heads: the kind, or the name of the task if several heads have one kind.

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
    """The file of each head in `HEAD=FILE,HEAD=FILE,…`; None for any other text, such as the path of one file."""
    pairs = [part.partition("=") for part in value.split(",")]
    files = {name: file for name, _, file in pairs if HEAD_NAME.fullmatch(name) and file}
    return files if len(files) == len(pairs) > 1 else None


def files_in(value: str) -> list[str]:
    """Paths in the value of an option for a file: one for each head, or the only one."""
    return [*(files_by_head(value) or {"": value}).values()]


def with_decisions_of(task: Any, source: Any) -> Any:
    """A task with the thresholds of another one, which has the same heads; without thresholds if that is None."""
    task = dataclasses.replace(task, decisions=source and source.decisions)
    if not task.tasks:
        return task
    parts = zip(task.tasks, source.tasks if source else [None] * len(task.tasks), strict=True)
    return dataclasses.replace(task, tasks=tuple(with_decisions_of(part, of_source) for part, of_source in parts))


def has_decisions(task: Any) -> bool:
    """Whether the answers have thresholds of their own, or those of one of several heads."""
    return any(part.decisions is not None for part in (task, *(task.tasks or ())))


def same_heads(one: Any, other: Any) -> bool:
    """Whether two tasks have heads of the same names, kinds and labels, in the same order."""
    heads = [[(part.name, part.kind, part.labels) for part in task.tasks or ()] for task in (one, other)]
    return heads[0] == heads[1]


def poolings(task: Any) -> tuple[Any, ...]:
    """Where a head reads the text, and where each of several does; see `TaskConfig.pooling`."""
    return task.pooling, *(part.pooling for part in task.tasks or ())


def with_pooling(task: Any, pooling: str | None) -> Any:
    """A task whose head reads the text there; of several heads, each one for sentences."""
    if not task.tasks:
        return dataclasses.replace(task, pooling=pooling)
    parts = [with_pooling(part, pooling) if part.rules.head == "sentence" else part for part in task.tasks]
    return dataclasses.replace(task, tasks=tuple(parts))


def with_poolings_of(task: Any, source: Any) -> Any:
    """A task whose heads read the text where those of another task do, which has the same heads."""
    task = dataclasses.replace(task, pooling=source.pooling)
    if not task.tasks:
        return task
    parts = zip(task.tasks, source.tasks, strict=True)
    return dataclasses.replace(task, tasks=tuple(with_poolings_of(part, of_source) for part, of_source in parts))
