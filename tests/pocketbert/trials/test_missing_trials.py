"""Trials without a result are executed, and each one is logged."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.trials.jobs import Job, MakeRun, Outcome
from pocketbert.trials.missing import Trials
from pocketbert.trials.workers import InTurn, Workers


def train(point: dict[str, Any], seed: int, folder: Path) -> None:
    if point["score"] is None:
        raise TrainingFailed("the loss is not finite")
    folder.mkdir(parents=True)
    result = {"main_metric": "f1", "metrics": {"f1": point["score"], "accuracy": 0.25}, "seed": seed}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def jobs_of(folder: Path, *scores: float | None) -> list[Job]:
    return [Job({"score": score}, 7, folder / "runs" / str(number)) for number, score in enumerate(scores)]


class Timed(Workers):
    """Executes jobs, the last first, and reports ten seconds for each."""

    parallel = 2

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for outcome in InTurn().outcomes(make_run, list(reversed(jobs))):
            yield dataclasses.replace(outcome, seconds=10.0)


def test_finished_trials_keep_their_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = jobs_of(tmp_path, 0.5, None, 0.75)
    train(jobs[2].point, 1, jobs[2].folder)
    finished, first, second = Trials(InTurn(), total=3).outcomes(train, jobs)
    assert (finished.job, finished.result["seed"], finished.seconds) == (jobs[2], 1, 0.0)
    assert (first.job, first.score, first.result["metrics"]["accuracy"], first.failure) == (jobs[0], 0.5, 0.25, "")
    assert (second.job, second.score, second.result) == (jobs[1], None, {})
    assert second.failure == "the loss is not finite"
    assert [line for line in capsys.readouterr().err.splitlines() if "starts" not in line] == [
        "runs/0: f1 0.5000 (00:00); 2 of 3 done, best 0.7500, about 00:00 left",
        "runs/1: failed: the loss is not finite (00:00); 3 of 3 done, best 0.7500",
    ]
    # The failed one is tried again, alone.
    assert [trial.failure for trial in Trials(InTurn(), total=3).outcomes(train, jobs)] == [
        "",
        "",
        first.failure or second.failure,
    ]


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        # 10 s for a work of 40, then 30, of 100; two at a time.
        (
            {"total": 4, "work": lambda point: 100 * point["score"]},
            ["1 of 4 done, best 0.4000, about 00:07 left", "2 of 4 done, best 0.4000, about 00:04 left"],
        ),
        # Seven and six are left after these.
        (
            {"total": 9, "done": 1, "best": 0.625},
            ["2 of 9 done, best 0.6250, about 00:35 left", "3 of 9 done, best 0.6250, about 00:30 left"],
        ),
        ({"total": 9, "seconds_left": lambda: 7.0}, ["about 00:07 left"] * 2),
        ({"seconds_left": lambda: -1.0}, ["1 done, best 0.4000, about 00:00 left", "about 00:00 left"]),
        ({}, ["runs/3: f1 0.4000 (00:10); 1 done, best 0.4000", "runs/2: f1 0.3000 (00:10); 2 done, best 0.4000"]),
    ],
)
def test_lines_tell_the_time_left(
    options: dict[str, Any], ends: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list(Trials(Timed(), **options).outcomes(train, jobs_of(tmp_path, 0.1, 0.2, 0.3, 0.4)))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("runs/") and "starts" not in line]
    assert len(lines) == 4 and all(line.endswith(end) for line, end in zip(lines[:2], ends, strict=True))


def test_bad_input_and_unshared_storage_stop_the_run(tmp_path: Path) -> None:
    def refuse(point: Any, seed: int, folder: Path) -> None:
        raise UserError("the input must be good")

    with pytest.raises(UserError, match="the input must be good"):
        list(Trials(InTurn()).outcomes(refuse, jobs_of(tmp_path, 0.5)))
    with pytest.raises(UserError, match=r"storage shared by all machines; .* has no result.json"):
        list(Trials(InTurn()).outcomes(lambda *_: None, jobs_of(tmp_path, 0.5)))
    (job,) = jobs_of(tmp_path, math.nan)
    job.folder.mkdir(parents=True)
    (job.folder / "result.json").write_text('{"metrics": []}', encoding="utf-8")
    with pytest.raises(UserError, match=r"result.json is damaged: .*; pass overwrite=True to make it again"):
        list(Trials(InTurn()).outcomes(train, [job]))
