"""Where the runs of a grid are made: here one after another, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.processes import end_with_parent, stderr_in
from pocketbert.progress import log_info
from pocketbert.training.grid import Point

MakeRun = Callable[[Point, int, Path], object]
_SPAWN = multiprocessing.get_context("spawn")


class Job(NamedTuple):
    """One run of a grid.

    Attributes:
      point: its options.
      seed: its seed.
      folder: its own, as an absolute path.
    """

    point: Point
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def log(self) -> Path:
        """What the run says, where it does not say it here."""
        return self.folder.with_suffix(".log")


class Outcome(NamedTuple):
    """What came of a job.

    Attributes:
      job: which.
      seconds: it took this time.
      failure: why the training failed; None if it did not.
    """

    job: Job
    seconds: float
    failure: str | None


class Workers(Protocol):
    """Makes runs.

    Attributes:
      parallel: how many at a time.
    """

    parallel: int

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Makes all runs, and tells of each as it ends.

        Args:
          make_run: makes the run of one point and one seed in one folder. A function of a module or a partial of one,
            since other processes get it pickled.
          jobs: in the order to begin them.

        Raises:
          UserError: what `make_run` found wrong with its input; the runs at work are stopped.
          TrainingFailed: a process ended without a word, for example for want of memory.
        """


class InTurn:
    """One run after another, in this process."""

    parallel = 1

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """As `Workers` says."""
        for job in jobs:
            log_info(f"{job.name}: begins")
            yield _make(make_run, job)


class Processes:
    """Several runs at a time on this machine, each in a process of its own with its share of the processor's cores.

    A run says what it has to say in a log beside its folder. The processes end with this one, however it ends.

    Args:
      parallel: runs at a time.
    """

    def __init__(self, parallel: int) -> None:
        self.parallel = parallel
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = max(1, cores // parallel)

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """As `Workers` says."""
        waiting = list(jobs)
        running: dict[Any, tuple[Any, Job]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.parallel:
                    job = waiting.pop(0)
                    answers, sender = _SPAWN.Pipe(duplex=False)
                    process = _SPAWN.Process(target=_work, args=(make_run, job, self.threads, sender), daemon=True)
                    process.start()
                    # With the other end closed here, the process' end is the end of what can be received.
                    sender.close()
                    running[answers] = process, job
                    log_info(f"{job.name}: begins; its log is {job.log}")
                for ready in multiprocessing.connection.wait(list(running)):
                    process, job = running[ready]
                    outcome = _received(ready, process, job)
                    del running[ready]
                    yield outcome
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.join()


class Ray:
    """Runs on a Ray cluster, whose machines have PocketBERT installed and share the storage of runs and inputs.

    Each run gets an equal share of the cluster's cores and, at most one, of its GPUs. Tested against a stand-in for
    Ray, and tried with Ray 2.60 on a single machine.

    Args:
      parallel: runs at a time.
      address: the cluster's, as `ray.init` takes it; `auto` is the one that this machine belongs to.

    Raises:
      UserError: Ray is not installed.
    """

    def __init__(self, parallel: int, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise UserError(
                f"several machines need Ray; received: {error}; install it with pip install 'pocketbert[ray]', or "
                "leave --ray out to work on this machine"
            ) from error
        self.parallel, self._address, self._ray = parallel, address, ray

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """As `Workers` says."""
        ray = self._ray
        # What a run says is in its log.
        ray.init(address=self._address, log_to_driver=False)
        try:
            total = ray.cluster_resources()
            # A run that wants more cores than any one machine has would wait for ever.
            largest = max(node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"])
            threads = int(max(1, min(largest, total.get("CPU", 1) // self.parallel)))
            gpus = min(1.0, total.get("GPU", 0) / self.parallel)
            # One call a process, which gives the memory of its graphs back when it ends.
            work = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=0, max_calls=1)(_work_logged)
            waiting = list(jobs)
            running: set[Any] = set()
            while waiting or running:
                while waiting and len(running) < self.parallel:
                    job = waiting.pop(0)
                    running.add(work.remote(make_run, job, threads))
                    log_info(f"{job.name}: handed to Ray; its log is {job.log}")
                done, _ = ray.wait(list(running), num_returns=1)
                running -= set(done)
                for reference in done:
                    yield _checked(ray.get(reference))
        finally:
            # Stops what is still at work.
            ray.shutdown()


def _make(make_run: MakeRun, job: Job) -> Outcome:
    begun = time.monotonic()
    failure = None
    try:
        make_run(job.point, job.seed, job.folder)
    except TrainingFailed as error:
        failure = str(error)
    return Outcome(job, time.monotonic() - begun, failure)


def _work_logged(make_run: MakeRun, job: Job, threads: int) -> Outcome | UserError:
    """Makes a run in a process of its own; what is said goes to the job's log, and bad input is an answer too."""
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    # Else the first process would take all of a GPU's memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with stderr_in(job.log):
        try:
            return _make(make_run, job)
        except UserError as error:
            return error
        except Exception:
            traceback.print_exc()
            raise


def _work(make_run: MakeRun, job: Job, threads: int, sender: Any) -> None:
    """What a process of `Processes` does."""
    # Ctrl-C on a terminal goes to every process; the parent alone answers, and stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    sender.send(_work_logged(make_run, job, threads))


def _received(answers: Any, process: Any, job: Job) -> Outcome:
    try:
        with answers:
            answer = answers.recv()
    except EOFError:
        process.join()
        ended = f"exit code {process.exitcode}" if process.exitcode >= 0 else f"signal {-process.exitcode}"
        raise TrainingFailed(
            f"{job.name}: the process ended with {ended}; see {job.log}; the same command resumes"
        ) from None
    process.join()
    return _checked(answer)


def _checked(answer: Outcome | UserError) -> Outcome:
    if isinstance(answer, UserError):
        raise answer
    return answer
