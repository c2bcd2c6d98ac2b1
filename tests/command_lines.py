"""Written command lines, in help texts and in the documentation: do they parse?"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence

from absl import flags

from pocketbert import cli


def flags_of(name: str, arguments: Sequence[str] = ()) -> flags.FlagValues:
    """The flags that command `name` takes on a command line with these arguments."""
    return cli.command_flags(name, arguments)[1]


def joined_lines(text: str) -> list[str]:
    """The lines of a console listing: continued lines joined, prompts removed."""
    lines = (line.strip().removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines())
    return [" ".join(line.split()) for line in lines if line]


def check_parses(command_line: str) -> None:
    """Raises when `pocketbert …` names a command or a flag that does not exist, or a flag's value is malformed."""
    words = shlex.split(command_line, comments=True)
    for end in ("|", ">", "2>", "<", "&&"):
        words = words[: words.index(end)] if end in words else words
    assert words[0] == "pocketbert", command_line
    if words[1:] == ["--help"]:
        return
    name, *arguments = words[1:]
    assert name in cli.COMMANDS, f"{command_line}: no command {name!r}"
    if "--help" in arguments:
        return
    positional = flags_of(name, arguments)([name, *arguments])[1:]
    takes_positionals = hasattr(importlib.import_module(cli.COMMANDS[name][0]), "POSITIONAL")
    assert takes_positionals or not positional, f"{command_line}: {name} takes flags only; received {positional}"
