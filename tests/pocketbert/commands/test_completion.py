"""Completion in shells."""

from __future__ import annotations

import subprocess

import pytest
from command_lines import variants

from pocketbert import cli
from pocketbert.commands import completion
from pocketbert.commands.command_line import Command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for line in variants():
        for field in Command(line[0], line[1:]).fields:
            if not field.positional:
                assert (f"-l {field.flag} " if shell == "fish" else f"--{field.flag}") in script


def test_bash_completes_commands_flags_and_values() -> None:
    program = (
        completion.script("bash")
        + """
compopt() { :; }
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _pocketbert; echo "${COMPREPLY[@]}"; }
complete_line pocketbert fi
complete_line pocketbert finetune --sch
complete_line pocketbert finetune --schedule = l
complete_line pocketbert distill --method = tiny
complete_line pocketbert distill --general-e
complete_line pocketbert completion z
complete_line pocketbert distill --student = tinybert_4
complete_line pocketbert finetune --model = all-m
complete_line pocketbert finetune --model = /et
"""
    )  # noqa: E501
    subprocess.run(["bash", "-n"], input=program, text=True, check=True)
    answer = subprocess.run(["bash"], input=program, capture_output=True, text=True, check=False)
    expected = ["finetune", "--schedule=", "linear", "tinybert", "--general-epochs=", "zsh"]
    expected += ["tinybert_4l_312d", "all-minilm", "/etc"]
    assert (answer.stdout.split("\n")[:-1], answer.stderr) == (expected, "")
