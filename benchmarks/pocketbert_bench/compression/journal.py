"""The record of a trial in the journal of a compression."""

from __future__ import annotations

import dataclasses

from pocketbert.trials.scores import TrialScore


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(TrialScore):
    """A finished trial, with its score on the dev split.

    Attributes:
      candidate: name of the candidate.
      rung: number of the round: 0 for the first short training, 1 for the second, longer one.
      epochs: passes over the training examples in all rungs.
      seconds: duration of this rung.

    Raises:
      UserError: a value is outside its range.
    """

    candidate: str
    rung: int
    epochs: int
    seconds: float

    def problems(self) -> list[str]:
        """Problems of the values."""
        wrong = self.rung < 0 or self.epochs < 1 or not self.seconds >= 0
        return super().problems() + ["rung and seconds must not be negative, and epochs must be positive"] * wrong
