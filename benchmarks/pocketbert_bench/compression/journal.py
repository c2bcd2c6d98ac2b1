"""A trial's record in the journal of a compression."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any

from pocketbert.training.run_folder import read_log
from pocketbert.trials.jobs import Job, Outcome
from pocketbert.trials.scores import TrialScore


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(TrialScore):
    """A finished trial, with its score on the dev split.

    Attributes:
      candidate: the candidate's name.
      rung: number of the round: 0 for the first short training, 1 and 2 for longer ones.
      epochs: passes over the training examples in all rungs; the last one may be a part.
      seconds: this rung's duration.
      training_seconds: seconds in steps and evaluations.
      interval: the score's 95 % interval; zeros without one.
      loss: mean label loss on the dev split, for equal scores; None if unknown.
      complete: whether it trained for all of its epochs.
    Raises:
      UserError: a value is outside its range.
    """

    candidate: str
    rung: int
    epochs: float
    seconds: float
    training_seconds: float
    interval: tuple[float, float]
    loss: float | None
    complete: bool

    @classmethod
    def of(cls, outcome: Outcome, *, candidate: str, rung: int, epochs: float, steps: float, before: float) -> Trial:
        """Creates the record for a trial that has ended.

        Args:
          outcome: its outcome.
          candidate: the candidate's name.
          rung: number of the round.
          epochs: planned passes over the training examples in this rung.
          steps: steps in these epochs.
          before: epochs in earlier rungs.
        """
        result: dict[str, Any] = outcome.result
        # A deadline may have ended it early. Questions have more steps, since their paragraphs are read in windows.
        share = min(result.get("steps", 0) / steps, 1)
        training_seconds = result.get("seconds", 0.0)
        return cls(
            candidate=candidate,
            rung=rung,
            # A failed trial has no steps.
            epochs=before + (epochs if share in (0, 1) else share * epochs),
            score=outcome.score,
            metrics=result.get("metrics", {}),
            interval=tuple(result.get("outcome", {}).get("interval") or (0.0, 0.0)),
            loss=_dev_loss(outcome.job, result["best_step"]) if result else None,
            # Over all attempts, if an earlier one finished it.
            seconds=max(outcome.seconds, training_seconds),
            training_seconds=training_seconds,
            complete=share == 1,
            failure=outcome.failure,
        )

    @property
    def rank(self) -> tuple[float, ...]:
        """Sorts trials with a score, the best first; equal scores go to the lower loss, as in the choice of weights."""
        return (*super().rank, math.inf if self.loss is None else self.loss)

    @property
    def standard_error(self) -> float:
        """The score's standard error on the dev split."""
        low, high = self.interval
        return (high - low) / (2 * statistics.NormalDist().inv_cdf(0.975))

    def is_below(self, score: float) -> bool:
        """Whether its score is below another by more than a standard error, if that is known."""
        return self.score is not None and 0 < self.standard_error < score - self.score

    def problems(self) -> list[str]:
        """Lists values that break a rule."""
        wrong = self.rung < 0 or self.epochs <= 0 or not 0 <= self.training_seconds <= self.seconds
        rule = "rung must not be negative, epochs must be positive, and training_seconds must be part of seconds"
        return super().problems() + [rule] * wrong


def _dev_loss(job: Job, step: int) -> float | None:
    """Loss from the evaluation behind a trial's score, after so many steps; None if the task has no loss."""
    evaluations = [line for line in read_log(job.folder) if line["split"] == "dev" and line["step"] == step]
    loss: float | None = evaluations[-1].get("loss") if evaluations else None
    return loss
