"""How messages name arguments: as Python code has them or, while a command runs, as its flags.

Messages of the library never contain a flag. They name arguments with `argument("overwrite", True)`: a Python caller
reads `overwrite=True`, the user of a command `--overwrite`. The command line selects its notation with `use_notation`
before it calls the library (`pocketbert.commands.flag_notation`). The notation applies when a message is made, so you
can join, log and store messages like any text. For the same reason, make messages in functions, not in constants.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_NO_VALUE = object()


class Notation:
    """Python's notation. Subclasses can be pickled, because worker processes get the notation of their parent."""

    def argument(self, name: str, value: Any, of: str, python: str) -> str:
        """See `argument`; without a value, `value` does not pass `has_value`."""
        return python or f"{name}={self.value_text(value)}"

    def command(self, name: str, arguments: Mapping[str, Any], python: str) -> str:
        """See `command`."""
        return python

    def value_text(self, value: Any) -> str:
        """The text of a value; empty without one."""
        if value is ...:
            return "…"
        return repr(value) if has_value(value) else ""


def has_value(value: Any) -> bool:
    """Whether a message names an argument with a value."""
    return value is not _NO_VALUE


_notation = Notation()


def argument(name: str, value: Any = _NO_VALUE, *, of: str = "", python: str = "") -> str:
    """Names an argument in a message.

    Args:
      name: the argument of a public function, or the field of an options dataclass. If Python has none, the option of
        the command, with `python`.
      value: its value; `...` for any value.
      of: the command with the option, if it is not the one that runs, for example export.
      python: what Python code has instead of an argument of this name.
    Returns:
      For example `dev=`, `kind='regression'` or `--dev-file`, `--kind=regression`.
    """
    return _notation.argument(name, value, of, python)


def command(name: str, *, python: str, **arguments: Any) -> str:
    """Names a command with options in a message.

    Returns:
      For example `pb.export('model')` or `pocketbert export --model=model`.
    """
    return _notation.command(name, arguments, python)


def current_notation() -> Notation:
    """The notation of new messages in this process."""
    return _notation


def set_notation(notation: Notation) -> None:
    """Sets the notation of new messages, in all threads of this process."""
    global _notation
    _notation = notation


@contextlib.contextmanager
def use_notation(notation: Notation) -> Iterator[None]:
    """Sets the notation inside the block."""
    before = current_notation()
    set_notation(notation)
    try:
        yield
    finally:
        set_notation(before)
