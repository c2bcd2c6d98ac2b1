"""How messages name arguments: as Python code has them or, while a command runs, as its flags.

Library messages never contain a flag: `argument("overwrite", True)` reads `overwrite=True` for a Python caller and
`--overwrite` for a command's user. The command line selects its notation with `use_notation`
(`pocketbert.commands.flag_notation`). The notation applies when a message is made, so make messages in functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_NO_VALUE = object()


class Notation:
    """Python's notation. Subclasses can be pickled, because worker processes get their parent's notation."""

    def argument(self, name: str, value: Any, of: str, python: str) -> str:
        """See `argument`; without a value, `value` does not pass `has_value`."""
        return python or f"{name}={self.value_text(value)}"

    def command(self, name: str, arguments: Mapping[str, Any], python: str) -> str:
        """See `command`."""
        return python

    def value_text(self, value: Any) -> str:
        """Returns the value as text; empty without one."""
        if value is ...:
            return "…"
        return repr(value) if has_value(value) else ""


def has_value(value: Any) -> bool:
    """Whether a message names an argument with a value."""
    return value is not _NO_VALUE


_notation = Notation()


def argument(name: str, value: Any = _NO_VALUE, *, of: str = "", python: str = "") -> str:
    """Names an argument in a message: `dev=`, `kind='regression'` or `--dev-file`, `--kind=regression`.

    Args:
      name: a public function's argument, or an options dataclass' field. If Python has none, the command's option, with
        `python`.
      value: its value; `...` for any value.
      of: the command with the option, if it is not the running one, for example export.
      python: Python's alternative to an argument with this name.
    """
    return _notation.argument(name, value, of, python)


def command(name: str, *, python: str, **arguments: Any) -> str:
    """Names a command with options in a message: `pb.export('model')` or `pocketbert export --model=model`."""
    return _notation.command(name, arguments, python)


def current_notation() -> Notation:
    """Returns the notation for new messages in this process."""
    return _notation


def set_notation(notation: Notation) -> None:
    """Sets the notation for new messages, in all threads in this process."""
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
