"""Every reader, given damaged files: each is read, or refused in one line, and in no time.

A new reader is a row of `READERS`. `fuzz_readers.py` runs any number of faults.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fuzz_readers
import pytest
from sample_files import READERS, Reader, sign_pretraining

from pocketbert.errors import UserError

FAULTS, SLOW_FAULTS, SEED = 30, 2000, 1
# `card` reads signed bundles, too, and `signed-kept-tokens-store` a signed store.
FURTHER, LATER = ("signed-bundle", "signed-teacher-store"), pytest.mark.nightly


def _check(name: str, folder: Path, faults: int) -> None:
    counts = fuzz_readers.Sample(name, folder).fuzz(faults, SEED)
    assert counts.raised == []
    assert counts.refused > faults / 20, f"{name}: only {counts.refused} of {faults} faults were refused"
    assert counts.accepted + counts.refused == counts.inputs == faults


@pytest.mark.parametrize("name", [pytest.param(name, marks=LATER if name in FURTHER else ()) for name in READERS])
def test_damaged_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path, FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path, SLOW_FAULTS)


@pytest.mark.parametrize("ending", [TypeError("one\ntwo"), UserError("one\ntwo"), fuzz_readers.TooSlow("late")])
def test_other_endings_are_counted(
    ending: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path) -> None:
        if path.read_text("utf-8") != "[1]":
            raise ending

    def make(folder: Path) -> Path:
        (folder / "a.json").write_text("[1]", "utf-8")
        return folder / "a.json"

    monkeypatch.setitem(READERS, "own", Reader(make=make, read=read))
    assert fuzz_readers.main(["--readers=own", "--inputs=9", "--seed=3"]) == 1
    stdout = capsys.readouterr().out
    count = len(re.findall(r"^  own, seed 3, fault \d, in a\.json: ", stdout, re.MULTILINE))
    assert 0 < count <= 9
    assert stdout.splitlines()[-1].split() == ["1", "readers", "9", str(9 - count), "0", str(count)]


def test_counts_are_printed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, fuzz_readers.__file__, "--inputs=21", "--readers=csv,expression"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["reader", "csv", "expression", "2"]
    assert [line[1] for line in lines[1:3]] == ["11", "10"]


def test_records_of_another_format_are_refused(tmp_path: Path) -> None:
    from pocketbert.data.pretraining.reader import PretrainingData

    folder = READERS["pretraining-data"].make(tmp_path)
    shard = next(folder.glob("*.tfrecord"))
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    sign_pretraining(folder)
    data = PretrainingData.open(folder)
    with pytest.raises(UserError, match="the records must be examples; received other content; copy the folder again"):
        data.dataset(data.plan(batch_size=2, seed=0, epoch=0), seed=0, epoch=0)
