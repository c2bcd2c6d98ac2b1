"""Workers execute trials: in this process, in several local processes, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.notation import Notation, argument, current_notation, use_notation
from pocketbert.processes import Parent, begin_worker, stderr_in
from pocketbert.progress import log_info
from pocketbert.trials.jobs import Job, MakeRun, Outcome

_SPAWN = multiprocessing.get_context("spawn")
_SECONDS_TO_CONNECT = 10


class Workers:
    """Executes jobs.

    Attributes:
      parallel: simultaneous runs.
    """

    parallel = 1

    def close(self) -> None:
        """Ends idle processes."""

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Executes all jobs and yields each outcome as the job ends.

        Args:
          make_run: runs one point with one seed in one folder. It must be a function at module level, or a partial of
            one, because other processes receive it pickled.
          jobs: jobs in starting order.
        Raises:
          UserError: `make_run` rejected its input. The other runs are stopped.
          TrainingFailed: a program error ended a process.
        """
        raise NotImplementedError


class InTurn(Workers):
    """Executes runs one after another in this process."""

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """See `Workers`."""
        for job in jobs:
            log_info(f"{job.name}: starts")
            yield _make(make_run, job)


class _Death(NamedTuple):
    """How a run's process died; `killed` unless by a program error."""

    how: str
    killed: bool


class _AtOnce(Workers):
    """Executes several runs at a time in other processes, each with a log next to its folder.

    A killed run, for example because memory ran out, starts once more from its checkpoint; killed again, it has failed.
    """

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """See `Workers`."""
        waiting, killed = list(jobs), set[Path]()
        running: dict[Any, tuple[Job, float]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.parallel:
                    job = waiting.pop(0)
                    running[self._start(make_run, job)] = job, time.monotonic()
                process, answer = self._ended(list(running))
                job, begun = running.pop(process)
                if not isinstance(answer, _Death):
                    yield answer
                    continue
                sentence, again = f"{job.name}: {answer.how}; see {job.log}", job.folder not in killed
                if not answer.killed:
                    raise TrainingFailed(f"{sentence}; the same command resumes")
                log_info(f"{sentence}; it starts once more" if again else sentence)
                killed.add(job.folder)
                if again:
                    waiting.insert(0, job)
                else:
                    yield Outcome(job, time.monotonic() - begun, f"{answer.how}, twice")
        finally:
            self._stop(list(running))

    def _start(self, make_run: MakeRun, job: Job) -> Any:
        """Starts a run; returns its process, or a reference to it."""
        raise NotImplementedError

    def _ended(self, processes: Sequence[Any]) -> tuple[Any, Outcome | _Death]:
        """Waits until a process has executed its run; raises its `UserError`."""
        raise NotImplementedError

    def _stop(self, processes: Sequence[Any]) -> None:
        """Ends unfinished runs at once."""
        raise NotImplementedError


class Processes(_AtOnce):
    """Executes several runs at a time in processes on this machine.

    Each process uses an equal share of the CPU cores and writes a log next to its run folder. The processes end with
    this one, even if it is killed.

    Args:
      parallel: simultaneous runs.
      jobs_a_process: jobs before a process ends and releases the memory of its graphs.
    """

    def __init__(self, parallel: int, jobs_a_process: int = 1) -> None:
        self.parallel, self._jobs_a_process = parallel, jobs_a_process
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = max(1, cores // parallel)
        self._idle: list[_WorkerProcess] = []

    def close(self) -> None:
        """See `Workers`."""
        while self._idle:
            self._idle.pop().end()

    def _start(self, make_run: MakeRun, job: Job) -> _WorkerProcess:
        process = self._idle.pop() if self._idle else _WorkerProcess(self.threads)
        process.start(make_run, job)
        log_info(f"{job.name}: starts; log: {job.log}")
        return process

    def _ended(self, processes: Sequence[_WorkerProcess]) -> tuple[_WorkerProcess, Outcome | _Death]:
        ready = multiprocessing.connection.wait([process.connection for process in processes])
        process = next(process for process in processes if process.connection in ready)
        answer = process.answer()
        if isinstance(answer, _Death) or process.jobs == self._jobs_a_process:
            process.end()
        else:
            self._idle.append(process)
        return process, answer

    def _stop(self, processes: Sequence[_WorkerProcess]) -> None:
        for process in processes:
            process.stop()


class _WorkerProcess:
    """A process that executes jobs one after another."""

    def __init__(self, threads: int) -> None:
        self.connection, remote = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(remote, threads, Parent.here()), daemon=True)
        self._process.start()
        # Without this close, `recv` would block after the process died.
        remote.close()
        self.jobs = 0

    def start(self, make_run: MakeRun, job: Job) -> None:
        self.jobs += 1
        # A dead process is reported by `answer`.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send((make_run, job))

    def answer(self) -> Outcome | _Death:
        """Waits for the started job's outcome, or the process' death."""
        try:
            return _checked(self.connection.recv())
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            assert code is not None
            return _Death(f"the process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}", code < 0)

    def end(self) -> None:
        """Lets the idle process end."""
        self.connection.close()
        self._process.join()

    def stop(self) -> None:
        """Ends the process at once."""
        self._process.terminate()
        self.end()


class Ray(_AtOnce):
    """Executes runs on a Ray cluster.

    All machines need PocketBERT and the same storage for runs and inputs. Each run gets an equal share of the CPU
    cores, and at most one GPU. If its machine dies, a run starts once more on another one, as after a kill.

    Args:
      parallel: simultaneous runs.
      address: cluster address for `ray.init`; `auto` selects this machine's cluster.
    Raises:
      UserError: Ray is not installed, or the address does not answer.
    """

    def __init__(self, parallel: int, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise UserError(
                f"several machines need Ray; received: {error}; install it with pip install 'pocketbert[ray]', or "
                f"leave out {argument('ray', python='workers=')} to use this machine alone"
            ) from error
        _check_address(address)
        self.parallel, self._address, self._ray = parallel, address, ray
        # Before anything is trained.
        self._connect()
        ray.shutdown()

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """See `Workers`."""
        self._connect()
        yield from super().outcomes(make_run, jobs)

    def _start(self, make_run: MakeRun, job: Job) -> Any:
        """Submits a run with its share of the living machines; returns its reference."""
        ray = self._ray
        total = ray.cluster_resources()
        # Ray would never schedule a run that requests more cores than the largest machine has.
        largest = max(node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"])
        threads = int(max(1, min(largest, total.get("CPU", 1) // self.parallel)))
        gpus = min(1.0, total.get("GPU", 0) / self.parallel)
        # One call per process, because only its end releases the memory of its graphs.
        work = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=0, max_calls=1)(_work_logged)
        log_info(f"{job.name}: submitted to Ray; log: {job.log}")
        return work.remote(make_run, job, threads, current_notation())

    def _ended(self, processes: Sequence[Any]) -> tuple[Any, Outcome | _Death]:
        (reference,), _ = self._ray.wait(processes, num_returns=1)
        try:
            return reference, _checked(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            killed = not isinstance(error, self._ray.exceptions.RayTaskError)
            return reference, _Death(f"Ray lost the run ({type(error).__name__}; see ray status)", killed)

    def _stop(self, processes: Sequence[Any]) -> None:
        # This stops unfinished runs.
        self._ray.shutdown()

    def _connect(self) -> None:
        try:
            # Each run writes its own log.
            self._ray.init(address=self._address, log_to_driver=False)
        except ConnectionError as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"a Ray cluster must run at the address; received {self._address} ({reason}); start it with ray start "
                f"--head, or leave out {argument('ray', python='workers=')} to use this machine alone"
            ) from None


def _check_address(address: str) -> None:
    """Connects to a cluster's address, because `ray.init` waits for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator:
        # Such as `auto`: Ray finds this machine's cluster, or reports in `_connect` that there is none.
        return
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_CONNECT).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"a Ray cluster must answer within {_SECONDS_TO_CONNECT} s; received {address} ({error}); check the "
            "address and the network, or use auto on a machine of the cluster"
        ) from None


def _make(make_run: MakeRun, job: Job) -> Outcome:
    begun = time.monotonic()
    failure = ""
    try:
        make_run(job.point, job.seed, job.folder)
    except TrainingFailed as error:
        failure = str(error)
    return Outcome(job, time.monotonic() - begun, failure)


def _work_logged(make_run: MakeRun, job: Job, threads: int, notation: Notation) -> Outcome | UserError:
    """Executes a job in a separate process with stderr in the job's log; returns bad input as a UserError."""
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
    # By default, the first process reserves all memory of a GPU.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with stderr_in(job.log), use_notation(notation):
        try:
            return _make(make_run, job)
        except UserError as error:
            return error
        except Exception:
            traceback.print_exc()
            raise


def _work(connection: Any, threads: int, parent: Parent) -> None:
    """The main function in a process from `Processes`."""
    # A terminal sends Ctrl-C to every process; only the parent handles it and stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin_worker(parent)
    with contextlib.suppress(EOFError):
        while True:
            make_run, job = connection.recv()
            connection.send(_work_logged(make_run, job, threads, parent.notation))


def _checked(answer: Outcome | UserError) -> Outcome:
    if isinstance(answer, UserError):
        raise answer
    return answer
