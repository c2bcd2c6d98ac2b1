"""Executes the trials of a run that have no result yet, and logs each one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert.trials.results import RESULT_FILE, read_result
from pocketbert.trials.workers import Job, MakeRun, Workers


class TrialResult(NamedTuple):
    """What a trial has left.

    Attributes:
      job: the trial.
      result: content of its `result.json`; empty after a failure.
      seconds: duration in this attempt; 0 for a trial that an earlier one finished.
      failure: error message of a failed training, or empty.
    """

    job: Job
    result: Mapping[str, Any]
    seconds: float
    failure: str

    @property
    def score(self) -> float | None:
        """The main metric; None after a failure."""
        return None if self.failure else self.metrics[self.result["main_metric"]]

    @property
    def metrics(self) -> dict[str, float]:
        """All metrics; none after a failure."""
        return {} if self.failure else self.result["metrics"]


class Trials:
    """The trials of a run.

    Args:
      workers: where they are executed.
      total: number of all trials; None if the time decides.
      done: number of those that an earlier attempt finished and `results` does not receive.
      best: highest score of those.
      work: relative duration of a trial with a point.
      seconds_left: time that is left for trials.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        total: int | None = None,
        done: int = 0,
        best: float = -math.inf,
        work: Callable[[Any], float] = lambda point: 1.0,
        seconds_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._workers, self._total, self._work, self._seconds_left = workers, total, work, seconds_left
        self.done, self._best = done, best
        self._spent = self._worked = 0.0

    def results(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[TrialResult]:
        """Yields the result of each job: first those that have one, then the others as they end.

        Args:
          make_run: see `Workers.outcomes`.
          jobs: jobs in starting order.

        Raises:
          UserError: `make_run` rejected its input, a result is damaged, or another machine's folder is not shared.
          TrainingFailed: a process died.
        """
        finished = [job for job in jobs if job.finished]
        for job in finished:
            yield self._result(job, 0.0, "")
        waiting = [job for job in jobs if job not in finished]
        # Trials of later calls count as 1.
        others = 0 if self._total is None else self._total - self.done - len(waiting)
        work = others + sum(self._work(job.point) for job in waiting)
        for job, seconds, failure in self._workers.outcomes(make_run, waiting):
            result = self._result(job, seconds, failure or "")
            work -= self._work(job.point)
            self._log(result, work)
            yield result

    def _result(self, job: Job, seconds: float, failure: str) -> TrialResult:
        if not failure and not job.finished:
            raise UserError(f"the output must be on storage shared by all machines; {job.folder} has no {RESULT_FILE}")
        result = TrialResult(job, {} if failure else read_result(job.folder / RESULT_FILE), seconds, failure)
        self.done += 1
        self._best = max(self._best, -math.inf if result.score is None else result.score)
        if result.score is not None and seconds:
            self._spent, self._worked = self._spent + seconds, self._worked + self._work(job.point)
        return result

    def _log(self, result: TrialResult, work: float) -> None:
        """Logs a line; `work` is that of the trials that are left."""
        score = f"{result.result['main_metric']} {result.score:.4f}" if result.result else f"failed: {result.failure}"
        line = f"{result.job.name}: {score} ({tqdm.format_interval(result.seconds)}); {self.done}"
        line += " done" if self._total is None else f" of {self._total} done"
        if self._best > -math.inf:
            line += f", best {self._best:.4f}"
        known = self._total is not None and self._worked
        estimate = self._spent / self._worked * work / self._workers.parallel if known else math.inf
        seconds = max(min(estimate, self._seconds_left()), 0)
        if self.done != self._total and seconds < math.inf:
            line += f", about {tqdm.format_interval(seconds)} left"
        log_info(line)
