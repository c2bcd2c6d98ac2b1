from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import job_subjects
import pytest

from pocketbert_bench import results
from pocketbert_bench.experiments.jobs import Job, keep, run_jobs
from pocketbert_bench.experiments.table import Experiment, failures, main


def job(folder: Path, name: str, *needs: str) -> Job:
    return Job(name=name, call=job_subjects.note, arguments=(str(folder), name), needs=needs)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def test_jobs_run_once_and_after_those_that_they_need(tmp_path: Path) -> None:
    chain = [job(tmp_path, "teacher"), job(tmp_path, "student/a", "teacher"), job(tmp_path, "student/b", "student/a")]
    done, failed = run_jobs(chain[::-1], tmp_path, processes=2)
    assert failed == {}
    assert calls(tmp_path) == ["teacher", "student/a", "student/b"]
    assert done["student/b"] == {"name": "student/b", "threads": "1"}
    assert json.loads((tmp_path / "jobs" / "student" / "b.json").read_text("utf-8")) == done["student/b"]
    late = dataclasses.replace(job(tmp_path, "late", "student/b"), threads=2)
    again = run_jobs([*chain, late], tmp_path, processes=2).done
    assert again == {**done, "late": {"name": "late", "threads": "2"}}
    assert calls(tmp_path) == ["teacher", "student/a", "student/b", "late"]


def test_a_failure_stops_only_what_needs_it(tmp_path: Path) -> None:
    broken = Job(name="broken", call=job_subjects.fail, arguments=())
    jobs = [broken, job(tmp_path, "after", "broken"), job(tmp_path, "beside")]
    done, failed = run_jobs(jobs, tmp_path, processes=1)
    assert failed == {"broken": "ValueError: no such luck"}
    assert [*done] == calls(tmp_path) == ["beside"]
    assert "ValueError: no such luck" in (tmp_path / "logs" / "broken.log").read_text("utf-8")


def test_no_job_starts_late_and_results_from_elsewhere_count(tmp_path: Path) -> None:
    keep(tmp_path, {"known": {"name": "from a file"}})
    both = [job(tmp_path, "known"), job(tmp_path, "other", "known")]
    assert run_jobs(both, tmp_path, processes=1, minutes=0).done == {"known": {"name": "from a file"}}
    assert calls(tmp_path) == []
    keep(tmp_path, {"known": {"name": "from another"}})
    assert run_jobs(both, tmp_path, processes=1).done["known"] == {"name": "from a file"}


def test_a_process_that_dies_costs_no_result(tmp_path: Path) -> None:
    dies = Job(name="dies", call=job_subjects.die, arguments=())
    done, failed = run_jobs([job(tmp_path, "before"), dies, job(tmp_path, "later")], tmp_path, processes=1)
    assert [*done] == ["before"] and failed.keys() == {"dies"}


def test_what_is_done_is_written_whatever_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment(
        result=tmp_path / "result.json",
        output=str(tmp_path),
        settings=lambda: {"seed": 1},
        jobs=lambda folder: [Job(name="broken", call=job_subjects.fail, arguments=()), job(folder, "good")],
        content=lambda done: results.result_file("made up", quick=False, notes=[",".join(done)]),
        scored=lambda content: {},
    )
    assert main(experiment, ["made-up", "--processes=1"]) == 1
    assert "broken: ValueError: no such luck; see" in capsys.readouterr().err
    content = results.read(tmp_path / "result.json")
    assert content.notes[0] == "good"
    assert failures(content) == {"broken": "ValueError: no such luck"}
    assert failures(dataclasses.replace(content, notes=("good",))) == {}


def test_jobs_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """Else they would keep the locks of their folders, and the same command could not go on."""
    with subprocess.Popen([sys.executable, job_subjects.__file__, str(tmp_path)], env=_environment()) as parent:
        worker = _soon(lambda: int((tmp_path / "pid").read_text("utf-8")) if (tmp_path / "pid").exists() else None)
        parent.send_signal(signal.SIGKILL)
    assert _soon(lambda: not _is_running(worker))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _soon(look: Any) -> Any:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in a minute")


def _is_running(pid: int) -> bool:
    try:
        # One that has ended and that nobody has asked about is no longer at work.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
