"""Options for models that answer questions, shared by several commands."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.configs import TaskConfig
from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems
from pocketbert_runtime.windows import WindowOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Limits on answers.

    Attributes:
      max_answer_tokens: questions: maximum answer length in tokens.
    """

    GROUP: ClassVar = "Questions"

    max_answer_tokens: int = 30

    def __post_init__(self) -> None:
        raise_if_any(option_problems(self), "answers")


OPTIONS = (WindowOptions, AnswerOptions)
NAMES = ("max_length", "stride", "max_question_tokens", "max_answer_tokens")


def windows(options: Options) -> dict[str, Any]:
    """Returns the fields of `WindowOptions` given by the user."""
    return options.given_of(WindowOptions)


def check_no_questions(options: Options, task: TaskConfig, *others: str, windows: bool = False) -> None:
    """Checks that only question models get options for questions, or the `others`; windows may apply to other models.

    Args:
      options: the command's options.
      task: the model's task.
      *others: names of further options for questions.
      windows: whether long texts are read in windows on request.
    Raises:
      UserError: lists all such options.
    """
    from pocketbert.tasks.registry import get_task

    fields = ("stride",) if windows else get_task(task).window_options
    window_names = ("max_length", *fields) if fields else ()
    flags = [name.replace("_", "-") for name in (*NAMES, *others) if name not in window_names and options.given(name)]
    raise_if_any(
        [f"--{name} is for a model that answers questions; received one for {task.kind}" for name in flags],
        options.command,
    )
