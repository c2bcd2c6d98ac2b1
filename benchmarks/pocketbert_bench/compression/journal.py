"""The record of a trial in the journal of a compression."""

from __future__ import annotations

import dataclasses
import statistics

from pocketbert.trials.scores import TrialScore


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(TrialScore):
    """A finished trial, with its score on the dev split.

    Attributes:
      candidate: name of the candidate.
      rung: number of the round: 0 for the first short training, 1 and 2 for longer ones.
      epochs: passes over the training examples in all rungs; the last one may be a part of one.
      seconds: duration of this rung.
      training_seconds: seconds of it in steps and evaluations.
      interval: 95 % interval of the score; zeros without one.
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
    complete: bool

    @property
    def standard_error(self) -> float:
        """Standard error of the score on the dev split."""
        low, high = self.interval
        return (high - low) / (2 * statistics.NormalDist().inv_cdf(0.975))

    def problems(self) -> list[str]:
        """Problems of the values."""
        wrong = self.rung < 0 or self.epochs <= 0 or not 0 <= self.training_seconds <= self.seconds
        rule = "rung must not be negative, epochs must be positive, and training_seconds must be part of seconds"
        return super().problems() + [rule] * wrong
