"""The task table: kind → class. Each row in `task_config.TASK_RULES` has a file with its name in this folder."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import importlib
from collections.abc import Sequence

from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import TASK_RULES, EncoderConfig, TaskConfig, TaskRules
from pocketbert.errors import UserError, raise_if_any
from pocketbert.layers.core import weights_by_path
from pocketbert.tasks.base import SupervisedTask, Task
from pocketbert.tasks.texts import TextTask

TASKS: dict[str, type[Task]] = {}


def get_task(config: TaskConfig) -> Task:
    """Returns the task for a configuration."""
    return TASKS[config.kind](config)


def check_tasks(encoder: EncoderConfig, tasks: Sequence[TaskConfig]) -> None:
    """Raises `UserError` if an encoder cannot carry the tasks' heads."""
    needing = [task.kind for task in tasks if get_task(task).needs_pooler and encoder.pooler == "none"]
    problems = [f"{kind} needs a pooler; received pooler='none'" for kind in needing]
    family = family_of(encoder.model_type)
    if family.has_prediction_layers and any(task.pairs for task in tasks):
        problems.append(
            f"pairs='separate' needs a head without layers of its own; received {family.title}'s; read both texts "
            "together"
        )
    raise_if_any(problems, "tasks")


def supervised_task(config: TaskConfig | None, rule: str = "", remedy: str = "") -> SupervisedTask:
    """Returns the task if it is supervised.

    Args:
      config: the configuration, or None.
      rule: start for the error message, up to the received value; empty for the default.
      remedy: end for the error message.
    Raises:
      UserError: there is no task, or it trains without labels.
    """
    task = None if config is None else get_task(config)
    if not isinstance(task, SupervisedTask):
        received = "none" if config is None else config.kind
        rule = rule or f"the task must be {listed(supervised_kinds())}; received"
        raise UserError(f"{rule} {received}{remedy and '; '}{remedy}")
    return task


def text_task(config: TaskConfig) -> TextTask:
    """Returns the task for a configuration known to be a `TextTask`."""
    task = get_task(config)
    assert isinstance(task, TextTask)
    return task


def supervised_kinds() -> list[str]:
    """Lists the supervised tasks' kinds."""
    return [kind for kind, task in TASKS.items() if issubclass(task, SupervisedTask)]


def listed(kinds: list[str]) -> str:
    """Formats kinds for a message: `a, b or c`."""
    return " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)


def register(task: type[Task], rules: TaskRules = TaskRules()) -> type[Task]:  # noqa: B008
    """Adds a task to the tables; a class decorator for tasks outside this package.

    Args:
      task: the class.
      rules: the row for `TASK_RULES`. Without a `head`, the head's weights are stored under their own paths.
    Raises:
      UserError: the kind is taken.
    """
    if task.kind in TASKS:
        raise UserError(f"a kind of task must be new; received {task.kind!r}; choose another name")

    def derived(encoder: EncoderConfig, config: TaskConfig) -> dict[str, tuple[int, ...]]:
        weights = weights_by_path(task(config).head(encoder))
        return {path: tuple(variable.shape) for path, variable in weights.items()}

    @functools.cache
    def shapes(encoder: EncoderConfig, config: TaskConfig) -> dict[str, tuple[int, ...]]:
        # A traced function may not make variables; another thread is outside it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(derived, encoder, config).result()

    TASK_RULES[task.kind] = dataclasses.replace(rules, head=rules.head or shapes)
    TASKS[task.kind] = task
    return task


for _kind, _rules in list(TASK_RULES.items()):
    _members = vars(importlib.import_module(f"pocketbert.tasks.{_kind}")).values()
    _tasks = [member for member in _members if isinstance(member, type) and issubclass(member, Task)]
    register(next(task for task in _tasks if getattr(task, "kind", None) == _kind), _rules)
