"""Messages of the library name arguments: a Python caller reads no flag, and a command names the flags that it has."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pretraining_text
import pytest

import pocketbert as pb
from pocketbert import cli
from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command
from pocketbert.commands.flag_notation import OPTION_OF_ARGUMENT
from pocketbert.data.pretraining.options import PretrainingOptions
from pocketbert.data.pretraining.run import write_pretraining_data
from pocketbert.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "runtime/pocketbert_runtime",
    "modeling/pocketbert",
    "export/pocketbert_export",
    "benchmarks/pocketbert_bench",
)
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]*)")
# Module → flags of other programs in its strings.
OTHER_PROGRAMS = {
    # This module is the command line.
    "modeling/pocketbert/cli.py": {"help", "help-all", "overwrite", "version"},
    # Apache Beam's options.
    "modeling/pocketbert/augmentation/beam.py": {"runner"},
    "modeling/pocketbert/data/pretraining/beam.py": {"direct_num_workers", "direct_running_mode", "runner"},
    # pip's.
    "modeling/pocketbert/_runtime.py": {"force-reinstall", "no-deps"},
    "modeling/pocketbert/data/assets.py": {
        *("dest", "disable-pip-version-check", "hash", "no-deps", "no-input", "only-binary", "quiet", "require-hashes"),
        *("requirement", "retries", "timeout"),
    },
    "export/pocketbert_export/tflite/environments.py": {
        *("disable-pip-version-check", "only-binary", "quiet", "require-hashes"),
    },
    # `ray start --head`.
    "modeling/pocketbert/trials/workers.py": {"head"},
    # git's.
    "benchmarks/pocketbert_bench/machine.py": {"abbrev", "always", "dirty", "exclude"},
    # Android's `am start`.
    "benchmarks/pocketbert_bench/phone_app.py": {"ei", "es"},
    # npm's.
    "benchmarks/pocketbert_bench/try_page.py": {"silent"},
}


def library_files(suffix: str) -> list[Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob(f"*{suffix}")]
    # A package's __main__ is a command line, too.
    return sorted(path for path in paths if "commands" not in path.parts and path.name != "__main__.py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """The strings, without docstrings."""
    docstrings = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def flags_in(tree: ast.AST, name: str = "") -> list[str]:
    """`line: --flag` for each flag in a string, except those of other programs; `--{` for an inserted name."""
    lines = [
        f"{node.lineno}: --{flag}"
        for node in strings(tree)
        for flag in FLAG.findall(node.value)
        if flag not in OTHER_PROGRAMS.get(name, ())
    ]
    inserted = [part for node in nodes(tree) if isinstance(node, ast.JoinedStr) for part in node.values[:-1]]
    return lines + [
        f"{part.lineno}: --{{"
        for part in inserted
        if isinstance(part, ast.Constant) and re.search(r"(?<![\w-])--$", part.value)
    ]


def test_library_strings_name_no_flag() -> None:
    paths = library_files(".py")
    assert len(paths) > 250
    named = []
    for path in paths:
        name = str(path.relative_to(ROOT))
        named += [f"{name}:{line}" for line in flags_in(parsed(path), name)]
    assert not named, "write argument(…) instead:\n" + "\n".join(named)


def test_pages_name_no_flag() -> None:
    paths = library_files(".html")
    assert len(paths) > 5
    named = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        # CSS variables have dashes too.
        for match in re.finditer(r"(?<![\w(-])--[a-z][\w-]*(?![\w-]*\s*:)", path.read_text("utf-8"))
    ]
    assert not named


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('raise UserError("pass --overwrite")', ["1: --overwrite"]),
        ('x = f"{a}; pass --labels={b}"', ["1: --labels"]),
        ('x = f"pass --{name}"', ["1: --{"]),
        ('"""A docstring with --overwrite."""', []),
        ('x = "two words -- and a dash, a--b"', []),
    ],
)
def test_measure_counts_flags(source: str, lines: list[str]) -> None:
    assert flags_in(ast.parse(source)) == lines


@cache
def options_of(name: str) -> frozenset[str]:
    """The options of a command, in all its variants."""
    module = Command(name).module
    variants = module.variants() if hasattr(module, "variants") else [()]
    return frozenset(field.name for arguments in variants for field in Command(name, arguments).fields)


@cache
def python_names() -> frozenset[str]:
    """Parameters of functions and fields of classes that are public."""
    names: set[str] = set()
    for path in library_files(".py"):
        for node in nodes(parsed(path)):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                names |= {parameter.arg for parameter in (*node.args.args, *node.args.kwonlyargs)}
            elif isinstance(node, ast.ClassDef):
                names |= {field.target.id for field in node.body if isinstance(field, ast.AnnAssign)}  # type: ignore[union-attr]
    return frozenset(names)


def calls(function: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Place, first argument and keywords of the library's calls of `argument` or `command` with a constant name."""
    for path in library_files(".py"):
        for node in nodes(parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == function
                and isinstance(node.args[0], ast.Constant)
            ):
                keywords = {str(word.arg): getattr(word.value, "value", ...) for word in node.keywords}
                yield f"{path.relative_to(ROOT)}:{node.lineno}", str(node.args[0].value), keywords


def test_arguments_exist_in_python_and_in_a_command() -> None:
    everywhere = frozenset().union(*map(options_of, COMMANDS))
    uses = list(calls("argument"))
    assert len(uses) > 100
    for location, name, keywords in uses:
        options = options_of(keywords["of"]) if "of" in keywords else everywhere
        assert {name, OPTION_OF_ARGUMENT.get(name, name)} & options, f"{location}: no command has {name}"
        assert "python" in keywords or name in python_names(), f"{location}: nothing in Python takes {name}"


def test_named_commands_have_the_options() -> None:
    uses = list(calls("command"))
    assert len(uses) >= 5
    for location, name, keywords in uses:
        assert name in COMMANDS and keywords.keys() - {"python"} <= options_of(name), location


def test_expressions_name_public_functions() -> None:
    expressions = [
        (path, match[1])
        for path in library_files(".py")
        for node in strings(parsed(path))
        for match in re.finditer(r"\bpb\.((?:data\.)?\w+)", node.value)
    ]
    assert len(expressions) > 5
    for path, name in expressions:
        module, _, function = name.rpartition(".")
        assert function in dir(pb.data if module else pb), f"{path}: pb.{name}"


def test_renamed_arguments_are_options() -> None:
    everywhere = frozenset().union(*map(options_of, COMMANDS))
    assert {*OPTION_OF_ARGUMENT.values()} <= everywhere and {*OPTION_OF_ARGUMENT} <= python_names()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with semicolons, whose rows have one text."""
    path = tmp_path / "train.csv"
    path.write_text("text;label\n" + "good;yes\n" * 3 + "good;no\n", encoding="utf-8")
    return path


def test_python_remedies_work(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: dict[str, Any] = {}
    with pytest.raises(UserError) as separators:
        pb.data.table(table)
    remedy = re.search(r"pass separator=(\S+)$", str(separators.value))
    assert remedy is not None and not FLAG.search(str(separators.value))
    arguments["separator"] = ast.literal_eval(remedy[1])
    with pytest.raises(UserError) as texts:
        pb.data.table(table, **arguments)
    assert str(texts.value).endswith("; pass dev=") and not FLAG.search(str(texts.value))
    assert len(pb.data.table(table, dev=table, **arguments).dev) == 4
    # A log line.
    table.write_text("text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(20)), encoding="utf-8")
    pb.data.table(table)
    assert capsys.readouterr().err.endswith("2 of 20 examples are the dev split; pass dev= to choose them\n")


def test_commands_remedies_work(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The data are read before the model.
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    line = ["finetune", f"--model={model}", f"--train-file={table}", f"--output={tmp_path / 'run'}"]
    assert cli.main(line) == 2
    remedy = re.search(r"pass (--separator=\S+) ", capsys.readouterr().err)
    assert remedy is not None
    line += shlex.split(remedy[1])
    assert cli.main(line) == 2
    remedy = re.search(r"received 1 in \S+; pass (--dev-file) ", capsys.readouterr().err)
    assert remedy is not None
    assert cli.main([*line, f"{remedy[1]}={table}"]) == 2
    assert f"{model}: " in capsys.readouterr().err


def test_overwrite_is_named_as_the_caller_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = pretraining_text.write_text(tmp_path / "text.txt")
    vocabulary = pretraining_text.write_vocabulary(tmp_path / "vocab.txt")
    make = functools.partial(
        write_pretraining_data,
        *(text, pb.WordPieceTokenizer(vocabulary), tmp_path / "data", PretrainingOptions(max_length=21)),
        shards=1,
    )
    make()
    with pytest.raises(UserError, match="the output must not exist yet; .* or pass overwrite=True$"):
        make()
    make(overwrite=True)
    line = ["pretrain-data", f"--text={text}", f"--vocab={vocabulary}", f"--output={tmp_path / 'data'}"]
    line += ["--max-length=21", "--shards=1", "--workers=1"]
    assert cli.main(line) == 2
    remedy = re.search(r"the output must not exist yet; .* or pass (--\S+) ", capsys.readouterr().err)
    assert remedy is not None and cli.main([*line, remedy[1]]) == 0
