"""The flags with which commands are told how paragraphs are read, for models that answer questions."""

from __future__ import annotations

from absl import flags

from pocketbert.configs import TaskConfig
from pocketbert.errors import raise_if_any

_WINDOWS = ("max-length", "stride", "max-question-tokens")
_ANSWERS = "max-answer-tokens"


def define(flag_values: flags.FlagValues) -> None:
    """Defines `--max-length`, `--stride`, `--max-question-tokens` and `--max-answer-tokens`."""
    flags.DEFINE_integer(
        "max-length",
        None,
        "questions: tokens of a window (default: 384, or a bundle's longest signature)",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "stride", None, "questions: tokens from a window to the next (default: a third of it)", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "max-question-tokens", None, "questions: longer ones are cut (default: 64)", flag_values=flag_values
    )
    flags.DEFINE_integer(_ANSWERS, 30, "questions: the longest answer", lower_bound=1, flag_values=flag_values)


def windows(flag_values: flags.FlagValues) -> dict[str, int]:
    """The fields of `WindowOptions` that were given."""
    given = {name: flag_values[name].value for name in _WINDOWS}
    return {name.replace("-", "_"): value for name, value in given.items() if value is not None}


def check_no_questions(flag_values: flags.FlagValues, task: TaskConfig, command: str, *others: str) -> None:
    """That no flag was given which a model that answers no questions has no use for.

    Args:
      flag_values: with this module's flags.
      task: the model's.
      command: its name, for the message.
      *others: such flags of the command's own.

    Raises:
      UserError: some were; all are listed.
    """
    given = [name for name in (*_WINDOWS, _ANSWERS, *others) if flag_values[name].present]
    raise_if_any(
        [f"--{name} is for a model that answers questions; received one for {task.kind}" for name in given], command
    )
