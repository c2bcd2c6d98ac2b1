"""A search's journal: candidates in suggestion order, and stage ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.feedforward import parse
from pocketbert.search.config import STAGES
from pocketbert.trials import scores
from pocketbert.trials.journal import Journal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate(scores.TrialScore):
    """One candidate, with its score on the examples for scores.

    Attributes:
      stage: stage number.
      index: number within the stage, from 0.
      genotype: one expression per layer.
      costs: cost name → value, such as `parameters`.
    Raises:
      UserError: a value is outside its range, or a text is no expression.
    """

    stage: int
    index: int
    genotype: tuple[str, ...]
    costs: dict[str, float]

    def problems(self) -> list[str]:
        """Lists problems with the values."""
        problems = super().problems()
        if self.stage not in STAGES:
            problems.append(f"stage must be one of {', '.join(map(str, STAGES))}; received {self.stage}")
        if wrong := {name: cost for name, cost in self.costs.items() if not cost >= 0}:
            problems.append(f"costs must not be negative; received {wrong}")
        for text in self.genotype:
            try:
                parse(text)
            except UserError as error:
                problems.append(str(error))
        return problems


@dataclasses.dataclass(frozen=True)
class StageEnd:
    """A stage's end, with its reason."""

    stage: int
    end: str


class SearchJournal(Journal[Candidate | StageEnd]):
    """See `Journal`."""

    def __init__(self, path: Path, run: Mapping[str, Any] | None = None) -> None:
        super().__init__(path, (Candidate, StageEnd), run)

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates in order."""
        return [record for record in self.records if isinstance(record, Candidate)]

    @property
    def ended(self) -> dict[int, str]:
        """Stage → why it ended, so that a resumed search does not continue it."""
        return {record.stage: record.end for record in self.records if isinstance(record, StageEnd)}

    def of_stage(self, stage: int) -> list[Candidate]:
        """Returns a stage's candidates in order."""
        return [candidate for candidate in self.candidates if candidate.stage == stage]

    @property
    def comparable(self) -> list[Candidate]:
        """All candidates; after stage 3 only its own, since they are scored without training."""
        return self.of_stage(3) or self.candidates


def front(candidates: Sequence[Candidate], cost: str) -> list[Candidate]:
    """Selects candidates that no other one beats in both score and a cost, a key in `Candidate.costs`."""
    return scores.front(candidates, lambda candidate: candidate.costs[cost], lambda candidate: candidate.score)
