"""Translates arguments in library messages to flags of the running command."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketbert.commands.command_line import Command
from pocketbert.notation import Notation, has_value
from pocketbert.options import OptionField, format_value

# Argument in Python → option with its value, if their names differ.
OPTION_OF_ARGUMENT = {
    "augmented": "augmented_file",
    "calibration": "calibration_file",
    "dev": "dev_file",
    "examples": "file",
    "folder": "data",
    "label": "label_column",
    "label_names": "labels",
    "pair": "pair_column",
    "train": "train_file",
}


@dataclass(frozen=True)
class FlagNotation(Notation):
    """A command line's notation.

    Attributes:
      name: the command.
      arguments: its command line; it decides on the options.
    """

    name: str
    arguments: tuple[str, ...] = ()

    def argument(self, name: str, value: Any, of: str, python: str) -> str:
        """Returns the flag, for example `--dev-file`; Python's notation for an argument without a flag."""
        fields = _fields(of) if of else _fields(self.name, self.arguments)
        field = fields.get(name) or fields.get(OPTION_OF_ARGUMENT.get(name, ""))
        return super().argument(name, value, of, python) if field is None else _flag(field, value)

    def command(self, name: str, arguments: Mapping[str, Any], python: str) -> str:
        """Returns the command line."""
        fields = _fields(name)
        return " ".join(["pocketbert", name, *(_flag(fields[option], value) for option, value in arguments.items())])


# File readers make messages for each line.
@functools.cache
def _fields(name: str, arguments: tuple[str, ...] = ()) -> dict[str, OptionField]:
    return {field.name: field for field in Command(name, arguments).fields}


def _flag(field: OptionField, value: Any) -> str:
    """Formats a flag with its value, quoted for a shell."""
    if field.kind == "bool" and not field.many:
        return f"--{'no' if value is False else ''}{field.flag}"
    if not has_value(value):
        return f"--{field.flag}"
    if value is ...:
        return f"--{field.flag}=…"
    text = format_value(field, tuple(value) if isinstance(value, list) else value)
    return f"--{field.flag}={text and shlex.quote(text)}"
