"""Run jobs with dependencies in parallel processes; results are kept, so that a rerun resumes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import process
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pocketbert import files
from pocketbert.processes import end_with_parent, stderr_in
from pocketbert.progress import log_info
from pocketbert.work_list import WorkList

# A process returns the memory of its graphs when it ends.
JOBS_A_PROCESS = 6


@dataclass(frozen=True, kw_only=True)
class StudyJob:
    """One job.

    Attributes:
      name: unique name; may contain `/`.
      call: a function of a module, so that other processes can import it; returns JSON values.
      arguments: arguments of `call`.
      needs: names of the jobs that must finish first.
      threads: number of compute threads. It counts as one job even with several threads, so a job that others wait for
        can use an idle core.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    needs: tuple[str, ...] = ()
    threads: int = 1


class Found(NamedTuple):
    """Results of jobs.

    Attributes:
      done: name → result.
      failed: name → reason, for jobs that failed in this run; the next run repeats them.
    """

    done: dict[str, Any]
    failed: dict[str, str]


def run_jobs(jobs: Sequence[StudyJob], folder: Path, *, processes: int, minutes: float | None = None) -> Found:
    """Runs unfinished jobs, in the given order as far as their dependencies allow.

    A job's result is saved in `folder/jobs/NAME.json`, and its output in `folder/logs/NAME.log`.

    Args:
      jobs: all jobs; each stands behind those that it needs.
      folder: folder of the experiment.
      processes: number of parallel jobs.
      minutes: start no job after this time; None starts all.
    Returns:
      Results, including those of earlier runs, and failures. A failed job blocks only the jobs that need it. If a
      process dies, for example out of memory, no further job starts.
    """
    work = WorkList(jobs, lambda job: _path(folder, job.name).exists())
    done = {job.name: json.loads(_path(folder, job.name).read_text(encoding="utf-8")) for job in work.finished}
    waiting = work.pending
    log_info(f"{len(done)} of {len(jobs)} jobs are done")
    failed: dict[str, str] = {}
    running: dict[concurrent.futures.Future[Any], tuple[StudyJob, float]] = {}
    begun = time.monotonic()
    broken = False
    with contextlib.ExitStack() as stack:
        # A process starts when a job needs one.
        pools = {threads: stack.enter_context(_pool(processes, threads)) for threads in {job.threads for job in jobs}}
        while True:
            late = minutes is not None and time.monotonic() - begun > 60 * minutes
            ready = [job for job in waiting if all(name in done for name in job.needs)]
            for job in [] if late or broken else ready[: processes - len(running)]:
                running[pools[job.threads].submit(_run, job, folder)] = (job, time.monotonic())
                waiting.remove(job)
            if not running:
                break
            finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                job, since = running.pop(future)
                if error := future.exception():
                    broken |= isinstance(error, process.BrokenProcessPool)
                    failed[job.name] = f"{type(error).__name__}: {error}"
                    log_info(f"{job.name}: failed: {failed[job.name]}")
                    continue
                done[job.name] = future.result()
                log_info(f"{job.name}: {time.monotonic() - since:.0f} s; {len(done)} of {len(jobs)} jobs are done")
    return Found(done, failed)


def keep(folder: Path, results: Mapping[str, Any]) -> None:
    """Saves results of jobs that ran elsewhere; existing results are kept."""
    for name, result in results.items():
        if not _path(folder, name).exists():
            _write(folder, name, result)


def _run(job: StudyJob, folder: Path) -> Any:
    with stderr_in(folder / "logs" / f"{job.name}.log"):
        try:
            result = job.call(*job.arguments)
        except Exception:
            traceback.print_exc()
            raise
    _write(folder, job.name, result)
    return result


def _pool(processes: int, threads: int) -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(threads,),
        max_tasks_per_child=JOBS_A_PROCESS,
    )


def _begin(threads: int) -> None:
    end_with_parent()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(threads)


def _path(folder: Path, name: str) -> Path:
    return folder / "jobs" / f"{name}.json"


def _write(folder: Path, name: str, result: Any) -> None:
    path = _path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, result)
