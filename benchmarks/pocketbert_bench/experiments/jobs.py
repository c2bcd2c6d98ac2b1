"""Jobs that wait for one another, several at a time, each in one thread; what is done stays done."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert import files
from pocketbert.progress import say

# A process gives the memory of its graphs back when it ends.
JOBS_A_PROCESS = 6


@dataclass(frozen=True, kw_only=True)
class Job:
    """One piece of work.

    Attributes:
      name: unlike any other's; may hold `/`.
      call: a function of a module, so that another process finds it; what it returns is JSON.
      arguments: for `call`.
      needs: names of the jobs that must be done before.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    needs: tuple[str, ...] = ()


def run_jobs(jobs: Sequence[Job], folder: Path, *, processes: int, minutes: float | None = None) -> dict[str, Any]:
    """Runs what is not done yet, in the order given wherever that is possible.

    A job's result lies in `folder/jobs/NAME.json`, and what it says goes to `folder/logs/NAME.log`.

    Args:
      jobs: all of them; a job stands behind those that it needs.
      folder: of the whole experiment.
      processes: jobs at a time.
      minutes: start no job later than this; None: all of them.
    Returns:
      Name → result, of the jobs that are done.
    Raises:
      RuntimeError: jobs failed; the others have been run, but for those that needed them.
    """
    done = {job.name: _read(folder, job.name) for job in jobs if _path(folder, job.name).exists()}
    waiting = [job for job in jobs if job.name not in done]
    say(f"{len(done)} of {len(jobs)} jobs are done")
    failed: dict[str, str] = {}
    running: dict[concurrent.futures.Future[Any], tuple[Job, float]] = {}
    begun = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_one_thread, max_tasks_per_child=JOBS_A_PROCESS
    ) as pool:
        while True:
            late = minutes is not None and time.monotonic() - begun > 60 * minutes
            ready = [job for job in waiting if all(name in done for name in job.needs)]
            for job in [] if late else ready[: processes - len(running)]:
                running[pool.submit(_run, job, folder)] = (job, time.monotonic())
                waiting.remove(job)
            if not running:
                break
            finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                job, since = running.pop(future)
                if error := future.exception():
                    failed[job.name] = f"{type(error).__name__}: {error}"
                    say(f"{job.name}: failed: {failed[job.name]}")
                    continue
                done[job.name] = future.result()
                say(f"{job.name}: {time.monotonic() - since:.0f} s; {len(done)} of {len(jobs)} jobs are done")
    if failed:
        raise RuntimeError(f"{len(failed)} jobs failed: {', '.join(failed)}; see {folder / 'logs'}")
    return done


def keep(folder: Path, results: Mapping[str, Any]) -> None:
    """Takes results of jobs that were done elsewhere; those that are there stay.

    Args:
      folder: of the whole experiment.
      results: job's name → result.
    """
    for name, result in results.items():
        if not _path(folder, name).exists():
            _write(folder, name, result)


def _run(job: Job, folder: Path) -> Any:
    log = folder / "logs" / f"{job.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as stream:
        sys.stderr.flush()
        # TensorFlow writes to the descriptor, whatever `sys.stderr` is.
        os.dup2(stream.fileno(), 2)
        try:
            result = job.call(*job.arguments)
        except Exception:
            traceback.print_exc()
            raise
    _write(folder, job.name, result)
    return result


def _one_thread() -> None:
    # Two jobs with a thread each are faster than one after the other with two.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"


def _path(folder: Path, name: str) -> Path:
    return folder / "jobs" / f"{name}.json"


def _read(folder: Path, name: str) -> Any:
    return json.loads(_path(folder, name).read_text(encoding="utf-8"))


def _write(folder: Path, name: str, result: Any) -> None:
    path = _path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, result)
