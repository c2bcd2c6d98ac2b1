"""The one exception that means "the input is wrong", as opposed to a bug."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """Bad input: the message gives the rule, what was received and what to do.

    The command line prints it as one line on stderr and exits with code 2.
    """


def raise_if_any(problems: Iterable[str], subject: str) -> None:
    """Raises one `UserError` that lists all `problems`, or does nothing if there are none.

    Args:
      problems: one sentence each: rule, received, remedy.
      subject: what is wrong, for example a file's path; it opens the message.
    """
    found = list(problems)
    if found:
        raise UserError(f"{subject}: " + "; ".join(found))
