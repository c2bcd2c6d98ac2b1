"""Written command lines, in help texts and in the documentation: do they parse?"""

from __future__ import annotations

import shlex

from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command, parse


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
    if words[1:] in (["--help"], ["--version"]):
        return
    name, *arguments = words[1:]
    assert name in COMMANDS, f"{command_line}: no command {name!r}"
    if not {"--help", "--help-all"} & {*arguments}:
        parse(name, [argument for argument in arguments if not argument.startswith("--config=")])


def variants() -> list[tuple[str, ...]]:
    """Every command, those with methods once for each."""
    variants: list[tuple[str, ...]] = []
    for name in COMMANDS:
        module = Command(name).module
        variants += [(name, *variant) for variant in module.variants()] if hasattr(module, "variants") else [(name,)]
    return variants
