"""`pocketbert compress --unlabelled-file`: candidates that learn the teacher's answers to texts without labels."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_compression
import tiny_finetuning

import pocketbert as pb

TEXTS = 130


@pytest.fixture(scope="module")
def inputs(compression_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unlabelled")
    shutil.copytree(compression_inputs, folder, dirs_exist_ok=True)
    with (folder / "few.csv").open(newline="") as file:
        known = [row["text"] for row in csv.DictReader(file)]
    new = [f"{text} number {index}" for index, text in enumerate(known[:TEXTS])]
    (folder / "more.txt").write_text("".join(f"{text}\n" for text in [*known[:7], *new]))
    return folder


@pytest.fixture
def command(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    return tiny_compression.compress_command(inputs, tmp_path / "out", monkeypatch)


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_candidate_with_unlabelled_texts_can_win(
    command: Callable[..., int],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tiny_compression.compress_fast(inputs, monkeypatch, any_model=True)
    texts = f"--unlabelled-file={inputs / 'more.txt'}"
    limits = ("--max-latency-ms=4", "--kfold=2")
    assert command(texts, *limits, "--dry-run", table="few") == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    row = next(row for row in rows if row["method"] == "predictions+unlabelled")
    like = f"--like={row['structure']},{row['method']}"
    # The teacher has random weights, so it is sure of few texts.
    assert command(texts, *limits, like, "--trials=1", "--least-confidence=0.500001", table="few") == 0
    log = capfd.readouterr().err
    assert f"more.txt: {TEXTS} unlabelled texts; left out 7" in log
    assert "unlabelled texts have a label with a probability of at least 0.500001" in log
    (row,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert row["method"] == "predictions on unlabelled texts, too"
    assert "as many unlabelled texts as it had steps" in row["difference"]
    written = tmp_path / "out" / "splits" / "unlabelled.jsonl"
    assert len(written.read_text().splitlines()) == TEXTS
    distil = next(line for line in row["commands"] if line.startswith("pocketbert distill"))
    assert f"--unlabelled-file={written}" in distil and "--least-confidence=0.500001" in distil
    # The same command has the same result; other texts are refused by name.
    assert command(texts, *limits, like, "--trials=1", "--least-confidence=0.500001", table="few") == 0
    capfd.readouterr()
    (inputs / "other.txt").write_text("a text that no one has seen\n")
    assert command(f"--unlabelled-file={inputs / 'other.txt'}", *limits, like, "--trials=1", table="few") == 2
    assert "unlabelled" in capfd.readouterr().err


def test_texts_of_the_test_file_are_left_out(
    command: Callable[..., int], inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tests = tiny_finetuning.examples(120, seed=9)
    tiny_finetuning.write_table(tmp_path / "test.csv", tests)
    lines = sorted({*tests.texts})
    (tmp_path / "more.txt").write_text("".join(f"{text}\n" for text in [*lines, "a new text of its own"]))
    options = (f"--test-file={tmp_path / 'test.csv'}", f"--unlabelled-file={tmp_path / 'more.txt'}")
    assert command(*options, "--max-latency-ms=4", "--dry-run") == 0
    log = capfd.readouterr().err
    assert "more.txt: 1 unlabelled texts; left out" in log and f"{len(lines)} that are also in the test split" in log


def test_scores_have_no_confidence() -> None:
    rows = [{"text": f"a film {n}", "label": n % 5 / 4} for n in range(130)]
    data = pb.data.table(rows, kind="regression")
    with pytest.raises(pb.UserError, match="least_confidence needs labels with probabilities; received regression"):
        pb.data.with_unlabelled(data, [{"text": "a new text"}], least_confidence=0.9)


def test_confidence_without_texts_is_refused(command: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert command("--least-confidence=0.9", "--trials=1") == 2
    assert "--least-confidence is for --unlabelled-file; received it alone" in capfd.readouterr().err


def test_other_examples_are_refused_by_name(inputs: Path, tmp_path: Path) -> None:
    plain = pb.data.table(inputs / "few.csv")
    augmented = dataclasses.replace(plain, augmented=plain.train)
    with pytest.raises(pb.UserError, match="unlabelled texts; received .*few.csv; leave it out"):
        pb.compress(inputs / "teacher", augmented, tmp_path / "run", trials=1)
    assert not (tmp_path / "run").exists()
