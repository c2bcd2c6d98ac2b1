"""The harness of sweeps: the order of jobs, scores read back from result files, and the committed ones."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pocketbert_bench import results
from studies.jobs import Found, StudyJob
from studies.runner import RESULTS
from studies.sweep import Sweep, SweepSubject, folder_name, job_name

SWEEPS = ("minilmv2/accuracy", "tinybert/accuracy")


def load(name: str) -> Sweep:
    return importlib.import_module(f"studies.{name.replace('/', '.')}").SWEEP


@pytest.mark.parametrize("name", SWEEPS)
def test_complete_result_leaves_nothing_to_run(name: str) -> None:
    sweep, content = load(name), results.read(RESULTS / f"{name}.json")
    done = sweep.finished(content)
    assert [job.name for job in sweep.jobs(Path("out")) if job.name not in done] == []
    again = sweep.content(done)
    assert again.notes == content.notes
    assert Counter(content.accuracies) == Counter(again.accuracies)


@pytest.mark.parametrize("name", SWEEPS)
def test_jobs_follow_what_they_need(name: str) -> None:
    names: set[str] = set()
    for job in load(name).jobs(Path("out")):
        assert job.name not in names and names.issuperset(job.needs)
        names.add(job.name)


@pytest.mark.parametrize("name", SWEEPS)
def test_jobs_run_in_other_processes(name: str) -> None:
    for job in load(name).jobs(Path("out")):
        call, arguments = pickle.loads(pickle.dumps((job.call, job.arguments)))
        inspect.signature(call).bind(*arguments)


def score(*arguments: Any) -> dict[str, Any]:
    """A score for a run, which ends with task, seed and folder."""
    if arguments and arguments[-3] == "b" and arguments[-2] == 0:
        raise ValueError("no score")
    return {"metrics": {"f1": 0.5}, "examples": 3}


def sweep(**changes: Any) -> Sweep:
    """A teacher and two students, one of which needs the teacher; two tasks, two seeds."""
    fields: dict[str, Any] = {
        "result": "made_up",
        "title": "made up",
        "subjects": (
            SweepSubject(
                model="big", label="teacher", call=score, runs={None: ("a", "b")}, needs=lambda task, seed: ("t",)
            ),
            SweepSubject(model="small", label="taught", call=score, needs=lambda task, seed: (f"cache/{task}",)),
            SweepSubject(model="small", label="alone, x", call=score, runs={1: ("b",)}),
        ),
        "tasks": ("a", "b"),
        "seeds": (0, 1),
        "settings": lambda: {"rate": 0.5},
        "preparations": lambda output: [
            *(StudyJob(name=f"cache/{n}", call=score, arguments=(), needs=(f"big/teacher/{n}",)) for n in "ab"),
            *(StudyJob(name=name, call=score, arguments=()) for name in ("t", "unused")),
        ],
    }
    return Sweep(**fields | changes)


def scores(value: float, *recipes: str) -> dict[str, Any]:
    entries = [{"recipe": recipe, "metrics": {"f1": value}, "examples": 3} for recipe in recipes]
    return {"scores": entries} if entries else {"metrics": {"f1": value}, "examples": 3}


def finished(study: Sweep, *, without: str = "") -> dict[str, Any]:
    done = {
        name: scores(0.5, *["float", "int8"] if run.subject.label == "alone, x" else [])
        for name, run in study.runs().items()
        if name != without
    }
    return study.finished(study.content(done))


def test_jobs_start_seed_by_seed() -> None:
    assert [job.name for job in sweep().jobs(Path())] == [
        "t", "big/teacher/a", "big/teacher/b", "cache/a", "small/taught/a-0", "cache/b", "small/taught/b-0",
        "small/taught/a-1", "small/taught/b-1", "small/alone-x/b-1",
    ]  # fmt: skip


def test_finished_jobs_come_back() -> None:
    done = finished(sweep())
    assert {"t", "cache/a"} <= set(done)
    (entry,) = done["small/taught/a-1"]["scores"]
    assert entry["metrics"] == {"f1": 0.5} and entry["recipe"] == "trained" and entry["examples"] == 3
    assert [entry["recipe"] for entry in done["small/alone-x/b-1"]["scores"]] == ["float", "int8"]


def test_missing_score_repeats_what_it_needs() -> None:
    study = sweep()
    missing = {job.name for job in study.jobs(Path())} - set(finished(study, without="small/taught/a-1"))
    # The teacher of task b needs the same preparation as that of task a.
    assert missing == {"small/taught/a-1", "cache/a", "big/teacher/a", "t", "big/teacher/b"}


def test_other_settings_repeat_all() -> None:
    content = sweep().content({"big/teacher/a": scores(0.5)})
    assert sweep(settings=lambda: {"rate": 0.25}).finished(content) == {}


def run_here(jobs: Sequence[StudyJob], folder: Path, **_options: Any) -> Found:
    """`run_jobs` without processes."""
    done: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for job in jobs:
        if all(name in done for name in job.needs):
            try:
                done[job.name] = job.call(*job.arguments)
            except ValueError as error:
                failed[job.name] = f"ValueError: {error}"
    return Found(done, failed)


def test_failed_jobs_are_noted_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studies.sweep.run_jobs", run_here)
    monkeypatch.setattr("studies.sweep.RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    study = sweep()
    assert study.main(["sweep", f"--output={tmp_path / 'sweep'}"]) == 1
    content = results.read(tmp_path / "results" / "made_up.json")
    (note,) = (note.removeprefix("failed: ") for note in content.notes if note.startswith("failed: "))
    assert json.loads(note) == {"small/taught/b-0": "ValueError: no score"}
    assert {job.name for job in study.jobs(Path())} - set(study.finished(content)) >= {"small/taught/b-0", "t"}


def test_bad_flags_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep().main(["sweep", "rest"]) == 2
    assert "a sweep takes flags only; received rest" in capsys.readouterr().err


def test_names_are_folders() -> None:
    assert folder_name("teacher's (first, last) layers") == "teachers-first-last-layers"
    assert job_name("none", "most frequent label", "sst2") == "none/most-frequent-label/sst2"
