"""Executes unfinished trials and logs each one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from pocketbert.progress import log_info
from pocketbert.trials.jobs import Job, MakeRun, Outcome
from pocketbert.trials.workers import Workers


@dataclasses.dataclass
class Trials:
    """The trials in a run.

    Attributes:
      workers: where to execute them.
      total: number of trials; None if the time decides.
      done: ended trials; starts with those from earlier attempts outside the jobs for `outcomes`.
      best: their highest score.
      work: a trial's relative duration, from its point.
      seconds_left: time left for trials.
    """

    workers: Workers
    _: dataclasses.KW_ONLY
    total: int | None = None
    done: int = 0
    best: float = -math.inf
    work: Callable[[Any], float] = lambda point: 1.0
    seconds_left: Callable[[], float] = lambda: math.inf
    # Seconds and work of the trials that succeeded in this process.
    _spent: float = 0.0
    _worked: float = 0.0

    def outcomes(self, make_run: MakeRun, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yields each job's outcome: first jobs with a result, after 0 s, then others as they end.

        Args:
          make_run: see `Workers.outcomes`.
          jobs: jobs in starting order.
        Raises:
          UserError: `make_run` rejected its input, or a result is damaged or not on shared storage.
          TrainingFailed: a program error ended a process.
        """
        finished = [job for job in jobs if job.finished]
        for job in finished:
            yield self._count(Outcome(job, 0.0))
        waiting = [job for job in jobs if job not in finished]
        # Trials of later calls count as 1.
        others = 0 if self.total is None else self.total - self.done - len(waiting)
        work = others + sum(self.work(job.point) for job in waiting)
        for outcome in self.workers.outcomes(make_run, waiting):
            self._count(outcome)
            work -= self.work(outcome.job.point)
            if outcome.result:
                self._spent, self._worked = self._spent + outcome.seconds, self._worked + self.work(outcome.job.point)
            self._log(outcome, self._spent / self._worked * work / self.workers.parallel if self._worked else math.inf)
            yield outcome

    def _count(self, outcome: Outcome) -> Outcome:
        self.done += 1
        self.best = max(self.best, -math.inf if outcome.score is None else outcome.score)
        return outcome

    def _log(self, outcome: Outcome, estimate: float) -> None:
        """Logs a line; `estimate` is in seconds, if the number of trials left is known."""
        score = (
            f"{outcome.result['main_metric']} {outcome.score:.4f}" if outcome.result else f"failed: {outcome.failure}"
        )
        line = f"{outcome.job.name}: {score} ({tqdm.format_interval(outcome.seconds)}); {self.done}"
        line += " done" if self.total is None else f" of {self.total} done"
        if self.best > -math.inf:
            line += f", best {self.best:.4f}"
        seconds = min(math.inf if self.total is None else estimate, self.seconds_left())
        if self.done != self.total and seconds < math.inf:
            line += f", about {tqdm.format_interval(max(seconds, 0))} left"
        log_info(line)
