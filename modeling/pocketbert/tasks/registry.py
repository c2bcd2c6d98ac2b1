"""The one table of tasks: kind → everything that depends on it."""

from __future__ import annotations

from pocketbert import configs
from pocketbert.checkpoints import name_maps
from pocketbert.configs import EncoderConfig, TaskConfig, TaskRules
from pocketbert.errors import UserError
from pocketbert.layers.paths import weights_by_path
from pocketbert.tasks.base import SupervisedTask, Task
from pocketbert.tasks.classification import Classification
from pocketbert.tasks.masked_lm import MaskedLM
from pocketbert.tasks.multi_label import MultiLabel
from pocketbert.tasks.next_sentence import NextSentence
from pocketbert.tasks.regression import Regression
from pocketbert.tasks.span import Span
from pocketbert.tasks.texts import TextTask

# In the order in which messages list them.
TASKS: dict[str, type[Task]] = {
    task.kind: task for task in (Classification, MultiLabel, Regression, Span, MaskedLM, NextSentence)
}


def get_task(config: TaskConfig) -> Task:
    """The task that a configuration describes."""
    return TASKS[config.kind](config)


def supervised_task(config: TaskConfig | None, rule: str = "", remedy: str = "") -> SupervisedTask:
    """As `get_task`, for who needs labels or predictions.

    Args:
      config: the configuration, if there is one.
      rule: the message up to what was received; empty for one on the task.
      remedy: its last part.

    Raises:
      UserError: there is none, or it learns without labels.
    """
    task = None if config is None else get_task(config)
    if not isinstance(task, SupervisedTask):
        received = "none" if config is None else config.kind
        rule = rule or f"the task must be {listed(supervised_kinds())}; received"
        raise UserError(f"{rule} {received}{remedy and '; '}{remedy}")
    return task


def text_task(config: TaskConfig) -> TextTask:
    """As `get_task`, of a configuration that is known to be of a task on texts."""
    task = get_task(config)
    assert isinstance(task, TextTask)
    return task


def supervised_kinds() -> list[str]:
    """The kinds that learn from labels and predict."""
    return [kind for kind, task in TASKS.items() if issubclass(task, SupervisedTask)]


def listed(kinds: list[str]) -> str:
    """For a message: `a, b or c`."""
    return " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)


def register(task: type[Task], rules: TaskRules = TaskRules()) -> type[Task]:  # noqa: B008
    """Adds a row to the table, for a task outside of this package; a decorator of its class.

    A model directory keeps the weights of its head under their own paths.

    Args:
      task: the class.
      rules: what its configurations may say.

    Raises:
      UserError: there is a task of that kind.
    """
    if task.kind in TASKS:
        raise UserError(f"a kind of task must be new; received {task.kind!r}; choose another name")

    def weights(encoder: EncoderConfig, config: TaskConfig) -> dict[str, tuple[int, ...]]:
        head = weights_by_path(task(config).head(encoder))
        return {path: tuple(variable.shape) for path, variable in head.items()}

    configs.TASK_RULES[task.kind] = rules
    name_maps.add_head(task.kind, weights)
    TASKS[task.kind] = task
    return task
