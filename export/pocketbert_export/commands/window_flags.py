"""The flags with which commands are told how paragraphs are read, for models that answer questions."""

from __future__ import annotations

from absl import flags


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
    flags.DEFINE_integer(
        "max-answer-tokens", 30, "questions: the longest answer", lower_bound=1, flag_values=flag_values
    )


def windows(flag_values: flags.FlagValues) -> dict[str, int]:
    """The fields of `WindowOptions` that were given."""
    given = {name: flag_values[name].value for name in ("max-length", "stride", "max-question-tokens")}
    return {name.replace("-", "_"): value for name, value in given.items() if value is not None}
