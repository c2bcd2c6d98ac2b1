"""A finished `pocketbert compress` continues with a larger budget, and keeps its result until the new one is there."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_compression import measure_nothing

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.trials.journal import Journal
from pocketbert.trials.scores import front
from pocketbert_bench.compression import run
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.published import publish


@pytest.fixture(scope="module", autouse=True)
def _without_measurements() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        measure_nothing(patched)
        yield


@pytest.fixture(scope="module")
def finished(
    training: str, compression_inputs: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], Path]:
    """The command of a compression without its trials and output, and the folder of one with two trials."""
    folder = tmp_path_factory.mktemp(f"continued-{training}")
    command = ["compress", f"--model={compression_inputs / 'encoder'}"]
    command += [f"--train-file={compression_inputs / 'train.csv'}", "--length=16", "--max-latency-ms=9"]
    assert main([*command, "--trials=2", f"--output={folder / 'two'}"]) == 0
    return command, folder / "two"


@pytest.fixture(scope="module")
def continued(finished: tuple[list[str], Path]) -> Path:
    """A copy of the finished folder, continued to four trials."""
    command, folder = finished
    path = folder.with_name("continued")
    shutil.copytree(folder, path)
    assert main([*command, "--trials=4", f"--output={path}"]) == 0
    return path


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def trials(folder: Path) -> dict[tuple[str, int], Trial]:
    records = Journal(folder / "journal.jsonl", (Trial,)).records
    return {
        (trial.candidate, trial.rung): dataclasses.replace(trial, seconds=0.0, training_seconds=0.0)
        for trial in records
    }


def model_file(folder: Path) -> bytes:
    return (folder / "bundle" / "model.tflite").read_bytes()


@pytest.mark.nightly
def test_only_models_of_the_front_are_kept(finished: tuple[list[str], Path], continued: Path) -> None:
    for folder in (finished[1], continued):
        rows = read(folder, "leaderboard.json")
        best = front(rows, lambda row: row["latency_ms"], lambda row: row["score"])
        for row in rows:
            assert bool(row["model"]) is (row in best or row["chosen"])
            if row["model"]:
                assert pb.from_pretrained(folder / row["model"]).config.num_layers == row["structure"].count("-") + 1
        assert {row["model"] for row in rows if row["chosen"]} == {"model"}
        kept = {path.name for path in (folder / "models").glob("*")}
        assert kept == {row["name"] for row in rows if row["model"] and not row["chosen"]}
        assert not any((folder / name).exists() for name in ("next", "trials", "exports"))


def test_the_result_is_replaced(finished: tuple[list[str], Path], continued: Path) -> None:
    assert trials(finished[1]).items() <= trials(continued).items()
    result = read(continued, "result.json")
    assert result["trials"] == 4 and len(result["leaderboard"]) == 4
    assert result["leaderboard"] == read(continued, "leaderboard.json")
    assert result["sentence"] in html.unescape((continued / "report.html").read_text())
    assert "trials = 4" in (continued / "run.toml").read_text()
    assert main(["verify", str(continued / "bundle"), f"--model={continued / 'model'}"]) == 0


@pytest.mark.parametrize("place", [".", "folds/fold-1"])
def test_trials_of_an_earlier_version_are_refused(
    place: str,
    finished: tuple[list[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path, digest, lines = tmp_path / "out", "", []
    shutil.copytree(finished[1], path)
    (path / "result.json").unlink()
    for line in (path / "journal.jsonl").read_text().splitlines():
        content = json.loads(line)
        del content["loss"], content["digest"]
        digest = hashlib.sha256(f"{digest}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()
        lines.append(json.dumps(content | {"digest": digest}))
    (path / "journal.jsonl").unlink()
    (path / place).mkdir(parents=True, exist_ok=True)
    (path / place / "journal.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(run, "trained_teacher", lambda *_: pytest.fail("it trains"))
    assert main([*finished[0], "--trials=2", f"--output={path}"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "journal.jsonl is of an earlier version, which differs in loss; pass --overwrite" in message


@pytest.mark.nightly
def test_more_trials_equal_those_from_the_start(finished: tuple[list[str], Path], continued: Path) -> None:
    command, folder = finished
    whole = folder.with_name("whole")
    assert main([*command, "--trials=4", f"--output={whole}"]) == 0
    first = {key: trial for key, trial in trials(whole).items() if key[1] == 0}
    assert first == {key: trial for key, trial in trials(continued).items() if key[1] == 0} and len(first) == 4


def test_a_smaller_budget_has_the_finished_result(
    finished: tuple[list[str], Path], continued: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in continued.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*finished[0], "--trials=3", f"--output={continued}"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 4
    assert {path: path.read_bytes() for path in continued.rglob("*") if path.is_file()} == before
    assert main([*finished[0], "--minutes=30", f"--output={continued}"]) == 2
    assert "other options: budget='trials', received 'minutes'" in capsys.readouterr().err


def test_killed_while_it_continues(
    finished: tuple[list[str], Path], continued: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command, folder, path = *finished, tmp_path / "out"
    shutil.copytree(folder, path)
    add = Journal.add

    def add_and_die(self: Journal[Trial], one: Trial) -> None:
        add(self, one)
        raise SystemExit(9)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(Journal, "add", add_and_die)
        main([*command, "--trials=4", f"--output={path}"])
    assert len(trials(path)) == len(trials(folder)) + 1
    # The finished result, and its bundle.
    assert main([*command, "--trials=2", f"--output={path}"]) == 0
    assert read(path, "result.json")["trials"] == 2 and model_file(path) == model_file(folder)
    assert main([*command, "--trials=4", f"--output={path}"]) == 0
    assert trials(path) == trials(continued)
    assert model_file(path) == model_file(continued)
    assert (path / "model" / "model.safetensors").read_bytes() == (continued / "model/model.safetensors").read_bytes()


OLD = {"bundle/a": "old", "model/b": "old", "models/x/c": "old", "models/y/c": "old", "result.json": "old"}
NEW = {"bundle/a": "new", "model/b": "new", "models/z/c": "new", "report.html": "new"}
RESULT = json.dumps({"main_metric": "accuracy", "metrics": {}, "outcome": {"score": 0.7}})


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.json"
    }


def test_incomplete_files_are_discarded(tmp_path: Path) -> None:
    write(tmp_path, OLD | {"trials/t": "trial"} | {f"next/{name}": content for name, content in NEW.items()})
    publish(tmp_path, ("trials",))
    assert files(tmp_path) == OLD | {"trials/t": "trial"}


@pytest.mark.parametrize("count", range(6))
def test_killed_between_two_files(count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path, OLD | {"trials/t": "trial", "run.json": "{}"})
    write(tmp_path / "next", NEW | {"result.json": RESULT})
    replace, left = os.replace, [count]

    def replace_or_die(source: Any, target: Any) -> None:
        if not left[0]:
            raise SystemExit(9)
        left[0] -= 1
        replace(source, target)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(os, "replace", replace_or_die)
        publish(tmp_path, ("trials",))
    publish(tmp_path, ("trials",))
    assert files(tmp_path) == NEW | {"result.json": RESULT}
    assert read(tmp_path, "run.json") == {"outcome": {"score": 0.7}}
