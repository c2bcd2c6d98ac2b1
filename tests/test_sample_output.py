"""The page of the commands shows a run of every command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_lines import check_parses

from pocketbert.commands import COMMANDS
from sample_output import CHAIN, FILE, LEFT_OUT, PREPARE, run_chain, shortened

SAMPLES = json.loads(FILE.read_text(encoding="utf-8"))
# Minutes each, with tests of their own.
DEAR = {"compress", "quickstart", "search"}


def shape(line: str) -> str:
    """A line without its numbers."""
    return re.sub(r"[0-9][0-9.,:]*", "0", line)


def test_each_command_has_a_sample() -> None:
    assert {*SAMPLES} == {*COMMANDS} - {*LEFT_OUT}
    lines = {name: line for name, line in CHAIN if name != PREPARE}
    for name, sample in SAMPLES.items():
        assert sample["command"] == lines[name], f"{name}: run python tools/sample_output.py"
        assert sample["output"] == shortened(sample["output"]) != "", name
        (line,) = (part for part in sample["command"].split(" | ") if part.startswith("pocketbert "))
        check_parses(line)


@pytest.mark.nightly
def test_commands_print_their_samples(tmp_path: Path) -> None:
    for name, _, output in run_chain(tmp_path, without=DEAR):
        # A long run has other steps on another machine: compare lines without their numbers.
        expected = {shape(line) for line in SAMPLES[name]["output"].splitlines()} - {"…"}
        printed = {shape(line) for line in shortened(output).splitlines()}
        assert len(expected & printed) * 2 >= len(expected), f"{name}: {sorted(expected - printed)}"
