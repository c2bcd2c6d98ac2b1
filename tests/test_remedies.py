"""Messages name flags and commands that exist, so that a user can follow them.

Each string in the packages counts, except docstrings: messages are made in many ways, not only by `UserError(…)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "runtime/pocketbert_runtime",
    "modeling/pocketbert",
    "export/pocketbert_export",
    "benchmarks/pocketbert_bench",
)
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]*)")
# Words after "pocketbert" up to the end of the sentence or of the clause.
COMMAND = re.compile(r"\bpocketbert ([a-z][a-z-]+)([^;,.()`]*)")
GENERAL = {"help", "help-all", "version"}
# Strings with flags of other programs, and descriptions of kinds of files.
OTHERS = ("ray start --head", "pip install", "--hash=sha256", "--option=value", "adb ", "npm ")
KINDS = ("pocketbert pretraining data", "pocketbert teacher cache")


@dataclass(frozen=True)
class Message:
    """A string in the source; `…` stands for inserted values."""

    module: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.module.relative_to(ROOT)}:{self.line}: {self.text[:200]}"


@cache
def flags(command: str) -> frozenset[str]:
    """The flags of a command, in all its variants."""
    module = Command(command).module
    variants = module.variants() if hasattr(module, "variants") else []
    fields = [field for arguments in ([], *variants) for field in Command(command, arguments).fields]
    negated = {f"no{field.flag}" for field in fields if field.kind == "bool"}
    return frozenset({field.flag for field in fields} | negated | GENERAL)


def messages(source: str, path: Path) -> Iterator[Message]:
    """The strings with a space, without docstrings; parts that are joined at run time come one by one."""
    tree = ast.parse(source)
    left_out = set()
    nodes = [*ast.walk(tree)]
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            left_out |= {id(first.value)} if isinstance(first, ast.Expr) else set()
        elif isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip() and not any(other in text for other in (*OTHERS, *KINDS)):
            yield Message(path, node.lineno, text)


def faults(message: Message) -> list[str]:
    """Commands and flags that do not exist, or that the named command or the module's command lacks."""
    named = [(name, rest) for name, rest in COMMAND.findall(message.text) if name != "command"]
    problems = [f"no command {name!r}" for name, _ in named if name not in COMMANDS]
    command_names = [name for name, _ in named if name in COMMANDS]
    for name, rest in named:
        problems += [
            f"{name} has no --{flag}" for flag in FLAG.findall(rest) if name in COMMANDS and flag not in flags(name)
        ]
    parts = message.module.with_suffix("").relative_to(ROOT).parts[1:]
    commands = [name for name, (module, _) in COMMANDS.items() if module == ".".join(parts)]
    allowed = [*commands, *command_names] if commands else list(COMMANDS)
    everywhere = frozenset().union(*map(flags, allowed))
    return problems + [
        f"no --{flag} in {', '.join(commands) or 'any command'}"
        for flag in FLAG.findall(message.text)
        if flag not in everywhere
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_named_flags_and_commands_exist(package: str) -> None:
    problems = [
        f"{message}: {fault}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for message in messages(path.read_text("utf-8"), path)
        for fault in faults(message)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('raise UserError("rule; pass --no-such")', "no --no-such in any command"),
        ('problems.append(f"{a}; pass --no-such={b}")', "no --no-such in any command"),
        ('x = "make it with pocketbert exprot"', "no command 'exprot'"),
        ('x = f"run pocketbert finetune {a} --recipe=b"', "finetune has no --recipe"),
        ('"""A docstring with --no-such."""', ""),
        ('x = "pass --nocompare or --dev-file"', ""),
    ],
)
def test_wrong_names_in_messages_are_found(source: str, fault: str) -> None:
    problems = [fault for message in messages(source, ROOT / "modeling" / "a.py") for fault in faults(message)]
    assert problems == ([fault] if fault else [])


def test_commands_messages_keep_to_its_flags() -> None:
    path = ROOT / "modeling/pocketbert/commands/finetune.py"
    (message,) = messages('x = "pass --recipe, or --grid"', path)
    assert faults(message) == ["no --recipe in finetune"]
    (message,) = messages('x = "export it with pocketbert export, and pass --recipe"', path)
    assert not faults(message)
