"""The exceptions that are no bugs: the one that means "the input is wrong", and that of a training that diverged."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_CHARACTERS = 4000


class UserError(ValueError):
    """Bad input: the message gives the rule, what was received and what to do.

    The command line prints it as one line on stderr and exits with code 2. A message that quotes long input is cut in
    the middle.
    """

    # Keras and AutoGraph would make a page of the message.
    _keras_call_info_injected = True
    ag_pass_through = True

    def __init__(self, message: str) -> None:
        if len(message) > _MOST_CHARACTERS:
            message = f"{message[: _MOST_CHARACTERS // 2]} … {message[-_MOST_CHARACTERS // 2 :]}"
        super().__init__(message)


class TrainingFailed(RuntimeError):
    """The run cannot continue, though its input was good: the loss or the outputs are no longer finite."""


def raise_if_any(problems: Iterable[str], subject: str) -> None:
    """Raises one `UserError` that lists all `problems`, or does nothing if there are none.

    Args:
      problems: one sentence each: rule, received, remedy.
      subject: what is wrong, for example a file's path; it opens the message.
    """
    found = list(problems)
    if found:
        raise UserError(f"{subject}: " + "; ".join(found))


def did_you_mean(received: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of a message about an unknown name: ` (did you mean 'x'?)`, or nothing if no known name is like it.

    Args:
      received: the unknown name.
      known: the names that there are.
      prefix: of the name as the reader types it, for example `--`.
    """
    close = difflib.get_close_matches(received, list(known), n=1)
    return f" (did you mean {prefix + close[0]!r}?)" if close else ""
