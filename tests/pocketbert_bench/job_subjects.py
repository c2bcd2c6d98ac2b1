"""Calls for the tests of jobs: another process has to find them in a module."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pocketbert_bench.experiments.jobs import Job, run_jobs


def note(folder: str, name: str) -> dict[str, str]:
    """Adds a line to a file, so that a second call is seen."""
    with open(Path(folder) / "calls", "a", encoding="utf-8") as stream:
        stream.write(f"{name}\n")
    return {"name": name, "threads": os.environ["TF_NUM_INTRAOP_THREADS"]}


def fail() -> None:
    raise ValueError("no such luck")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait(folder: str) -> None:
    """Says which process it is, and goes on until it is ended."""
    path = Path(folder) / "pid"
    path.with_suffix(".aside").write_text(str(os.getpid()), encoding="utf-8")
    path.with_suffix(".aside").rename(path)
    time.sleep(600)


if __name__ == "__main__":
    # Not this module, whose name in another process would be `__main__`.
    import job_subjects

    run_jobs([Job(name="wait", call=job_subjects.wait, arguments=(sys.argv[1],))], Path(sys.argv[1]), processes=1)
