from __future__ import annotations

import json
from pathlib import Path

import job_subjects
import pytest

from pocketbert_bench.experiments.jobs import Job, keep, run_jobs


def job(folder: Path, name: str, *needs: str) -> Job:
    return Job(name=name, call=job_subjects.note, arguments=(str(folder), name), needs=needs)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def test_jobs_run_once_and_after_those_that_they_need(tmp_path: Path) -> None:
    chain = [job(tmp_path, "teacher"), job(tmp_path, "student/a", "teacher"), job(tmp_path, "student/b", "student/a")]
    done = run_jobs(chain[::-1], tmp_path, processes=2)
    assert calls(tmp_path) == ["teacher", "student/a", "student/b"]
    assert done["student/b"] == {"name": "student/b", "threads": "1"}
    assert json.loads((tmp_path / "jobs" / "student" / "b.json").read_text("utf-8")) == done["student/b"]
    assert run_jobs([*chain, job(tmp_path, "late", "student/b")], tmp_path, processes=2).keys() == {*done, "late"}
    assert calls(tmp_path) == ["teacher", "student/a", "student/b", "late"]


def test_a_failure_stops_only_what_needs_it(tmp_path: Path) -> None:
    broken = Job(name="broken", call=job_subjects.fail, arguments=())
    with pytest.raises(RuntimeError, match="1 jobs failed: broken"):
        run_jobs([broken, job(tmp_path, "after", "broken"), job(tmp_path, "beside")], tmp_path, processes=1)
    assert calls(tmp_path) == ["beside"]
    assert "ValueError: no such luck" in (tmp_path / "logs" / "broken.log").read_text("utf-8")


def test_no_job_starts_late_and_results_from_elsewhere_count(tmp_path: Path) -> None:
    keep(tmp_path, {"known": {"name": "from a file"}})
    both = [job(tmp_path, "known"), job(tmp_path, "other", "known")]
    assert run_jobs(both, tmp_path, processes=1, minutes=0) == {"known": {"name": "from a file"}}
    assert calls(tmp_path) == []
    keep(tmp_path, {"known": {"name": "from another"}})
    assert run_jobs(both, tmp_path, processes=1)["known"] == {"name": "from a file"}
