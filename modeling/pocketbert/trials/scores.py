"""Trial scores: checks, the best one, and the front of scores and costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pocketbert.errors import TrainingFailed, raise_if_any

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialScore:
    """A trial's score, the base for journal records.

    Attributes:
      score: main metric, from -1 to 1; None if the training failed.
      metrics: all metrics.
      failure: error message after failed training, or empty.
    Raises:
      UserError: a value is outside its range.
    """

    score: float | None
    metrics: dict[str, float]
    failure: str = ""

    def __post_init__(self) -> None:
        raise_if_any(self.problems(), type(self).__name__.lower())

    @property
    def rank(self) -> tuple[float, ...]:
        """Sorts trials with a score, the best first; subclasses break ties."""
        assert self.score is not None
        return (-self.score,)

    def problems(self) -> list[str]:
        """Lists problems with the values; subclasses add theirs."""
        problems = []
        if self.score is not None and not -1 <= self.score <= 1:
            problems.append(f"score must lie between -1 and 1; received {self.score}")
        if self.score is not None and self.score not in self.metrics.values():
            problems.append(f"score must be one of the metrics, {self.metrics}; received {self.score}")
        if (self.score is None) is not bool(self.failure):
            problems.append(f"a trial has either a score or a failure; received {self.score} and {self.failure!r}")
        return problems


Record = TypeVar("Record", bound=TrialScore)


def scores(records: Iterable[TrialScore]) -> list[float]:
    """Returns the scores without failed trials."""
    return [record.score for record in records if record.score is not None]


def best(records: Sequence[Record]) -> Record:
    """Returns the trial with the best rank, the first among equals.

    Raises:
      TrainingFailed: no trial has a score.
    """
    scored = [record for record in records if record.score is not None]
    if not scored:
        raise TrainingFailed(f"the training of every candidate failed; the first: {records[0].failure}")
    return min(scored, key=lambda record: record.rank)


def front(items: Iterable[Item], cost: Callable[[Item], float], score: Callable[[Item], float | None]) -> list[Item]:
    """Selects items that no other one beats in both score and cost, from cheap to expensive; omits failed ones."""
    members: list[Item] = []
    highest = float("-inf")
    scored = [(cost(item), -value, item) for item in items if (value := score(item)) is not None]
    for _, negative, item in sorted(scored, key=lambda entry: entry[:2]):
        if -negative > highest:
            highest = -negative
            members.append(item)
    return members
