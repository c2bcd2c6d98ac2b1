"""The command line as a person meets it: help at once, an example for everything, errors in one line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from absl import flags
from command_lines import check_parses, flags_of, joined_lines

from pocketbert import cli
from pocketbert.errors import UserError

POCKETBERT = Path(sys.executable).with_name("pocketbert")
# What takes seconds to import, and so has no place before a command runs.
HEAVY = [
    *"tensorflow tf_keras official tensorflow_text ai_edge_litert ai_edge_quantizer".split(),
    *"matplotlib sklearn scipy apache_beam".split(),
]


def pocketbert(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(POCKETBERT), *arguments], capture_output=True, text=True, timeout=60, check=False)


def examples(help_text: str) -> list[str]:
    """The command lines of a help text's example block, continued lines joined."""
    _, found, block = help_text.partition("Example:")
    assert found, f"there is no `Example:` in\n{help_text}"
    lines = joined_lines(block.partition("\nFlags of ")[0])
    return [line for line in lines if line.startswith("pocketbert ")]


def test_help_answers_at_once() -> None:
    # A person's limit for "at once". The best of five, since other processes may hold both cores.
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        assert pocketbert("--help").returncode == 0
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_command_on_stdout(arguments: tuple[str, ...]) -> None:
    answer = pocketbert(*arguments)
    assert (answer.returncode, answer.stderr) == (0, "")
    listed = re.findall(r"^  ([a-z-]+)  +\w", answer.stdout, flags=re.MULTILINE)
    assert listed == list(cli.COMMANDS)
    assert len(listed) >= 11


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_command_help_has_an_example_that_parses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = examples(printed.out)
    assert lines and all(line.split()[1] == name for line in lines)
    for line in lines:
        check_parses(line)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_flag_has_a_description_and_the_one_spelling(name: str) -> None:
    values = flags_of(name)
    silent = [flag for flag in values if not (values[flag].help or "").strip(" .")]
    assert not silent, f"flags without a description: {silent}"
    # One spelling for all: --text-column, not --text_column here and there.
    assert not [flag for flag in values if "_" in flag], "flags' words are joined by dashes"


def test_defining_every_command_imports_nothing_heavy() -> None:
    program = f"""
import importlib, sys
from absl import flags
from pocketbert import cli
for name, (module, _) in cli.COMMANDS.items():
    importlib.import_module(module).define(flags.FlagValues())
    heavy = [each for each in {HEAVY!r} if each in sys.modules]
    assert not heavy, f"{{name}} imports {{heavy}}"
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr


def test_an_unknown_command_is_one_line_on_stderr_and_exit_code_2() -> None:
    answer = pocketbert("destil")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert "no command 'destil'" in answer.stderr and "quickstart" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("presets", "--no-such-flag"), "no-such-flag"),
        (("presets", "stray"), "flags only"),
        (("export",), "model"),
        (("evaluate", "--model=no/such/folder"), ""),
        (("bench", "no/such/bundle"), "no/such/bundle"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    answer = pocketbert(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in answer.stderr and f"pocketbert {arguments[0]} --help" in answer.stderr
    assert answer.stderr.count("\n") == 1, answer.stderr


def test_results_go_to_stdout() -> None:
    whole = pocketbert("presets")
    assert whole.returncode == 0 and "mobilebert_tiny" in whole.stdout


@pytest.mark.parametrize("arguments", ["presets", "--help"])
def test_a_reader_that_leaves_early_is_no_error(arguments: str) -> None:
    # Closing the pipe before anything is read is what `head` does, without its timing.
    part = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{shlex.quote(str(POCKETBERT))} {arguments} | (exec <&-)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (part.returncode, part.stderr) == (0, "")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UserError("a rule;\n  what was received"), 2, "a rule; what was received"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_exit_codes(
    raised: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: flags.FlagValues) -> None:
        raise raised

    monkeypatch.setattr("pocketbert.commands.presets.run", fail)
    assert cli.main(["presets"]) == code
    printed = capsys.readouterr()
    assert printed.out == "" and said in printed.err and printed.err.count("\n") == 1


def test_a_negative_result_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketbert.commands.presets.run", lambda _: 1)
    assert cli.main(["presets"]) == 1


def test_a_bug_is_not_disguised_as_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: flags.FlagValues) -> None:
        raise ValueError("an error of ours")

    monkeypatch.setattr("pocketbert.commands.presets.run", fail)
    with pytest.raises(ValueError, match="an error of ours"):
        cli.main(["presets"])


def test_presets_as_json_are_json() -> None:
    answer = pocketbert("presets", "--format=json")
    assert answer.returncode == 0, answer.stderr
    assert len(json.loads(answer.stdout)) >= 13
