"""Invalid input, which is no bug, and parts for its messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, get_args

_MOST_CHARACTERS = 4000
# A terminal obeys them. Tabs and line ends of both kinds stay.
_CONTROLS = re.compile(r"(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class UserError(ValueError):
    """Invalid input. The message gives rule, received value and remedy.

    The command line prints it as one line on stderr and exits with code 2. Long messages are shortened in the middle.
    """

    # Otherwise Keras and AutoGraph add a page of text to the message.
    _keras_call_info_injected = True
    ag_pass_through = True

    def __init__(self, message: str) -> None:
        if len(message) > _MOST_CHARACTERS:
            message = f"{message[: _MOST_CHARACTERS // 2]} … {message[-_MOST_CHARACTERS // 2 :]}"
        super().__init__(message)


def printable(text: str) -> str:
    r"""Replaces control characters, which a terminal would obey, by their JSON escapes, such as `\u001b`.

    Args:
      text: any text; tabs and line ends stay.
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def raise_if_any(problems: Iterable[str], subject: str) -> None:
    """Raises one `UserError` that lists all `problems`, if there are any.

    Args:
      problems: one sentence each: rule, received value, remedy.
      subject: start of the message, for example a file's path.
    """
    reasons = list(problems)
    if reasons:
        raise UserError(f"{subject}: " + "; ".join(reasons))


def literal_problems(name: str, value: object, literal: Any) -> list[str]:
    """Lists problems with a value that must be in a `Literal`."""
    accepted = get_args(literal)
    return [] if value in accepted else [f"{name} must be one of {', '.join(accepted)}; received {value!r}"]


def first_line(error: Exception) -> str:
    """Returns the first line of a library's message, at most 200 characters; its type if it has none."""
    lines = str(error).split("\n")
    return next((line.strip()[:200] for line in lines if line.strip()), type(error).__name__)


def did_you_mean(received: str, choices: Iterable[str], prefix: str = "") -> str:
    """Returns ` (did you mean 'x'?)` for an unknown name, or "" if no known name is similar."""
    close = difflib.get_close_matches(received, list(choices), n=1)
    return f" (did you mean {prefix + close[0]!r}?)" if close else ""
