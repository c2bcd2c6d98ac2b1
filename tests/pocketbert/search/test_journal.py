"""The front and the best of a journal, against comparisons of all pairs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from sample_models import EXPRESSION

from pocketbert.errors import TrainingFailed
from pocketbert.search.journal import Candidate, SearchJournal, front
from pocketbert.trials.scores import best


def _candidate(index: int, cost: float, score: float | None, stage: int = 1) -> Candidate:
    failure = "" if score is not None else f"failure {index}"
    # The second cost runs against the first.
    costs = {"parameters": cost, "latency_ms": 10 - cost}
    metrics = {} if score is None else {"accuracy": score}
    genotype = (EXPRESSION,)
    return Candidate(
        stage=stage, index=index, genotype=genotype, costs=costs, score=score, metrics=metrics, failure=failure
    )


def _beats(one: Candidate, other: Candidate, cost: str) -> bool:
    """Whether one is at least as good in score and cost, and better in one of them."""
    assert one.score is not None and other.score is not None
    better = one.score - other.score, other.costs[cost] - one.costs[cost]
    return min(better) >= 0 and max(better) > 0


@pytest.mark.parametrize("cost", ["parameters", "latency_ms"])
@pytest.mark.parametrize("shift", [0.0, -0.5])
def test_front_has_what_no_other_beats(cost: str, shift: float) -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        # Few values: many are equal, and some scores are zero or negative, as correlations may be.
        pairs = random.integers(0, 4, size=[int(random.integers(1, 9)), 2])
        candidates = [_candidate(index, float(x), y / 4 + shift) for index, (x, y) in enumerate(pairs.tolist())]
        failed = [_candidate(len(candidates), 0.0, None)]
        front_rows = front([*failed, *candidates], cost)
        unbeaten = [one for one in candidates if not any(_beats(other, one, cost) for other in candidates)]
        # Of equal ones, the first is named.
        first = {(record.costs[cost], record.score): record for record in reversed(unbeaten)}
        assert front_rows == [first[key] for key in sorted(first)]  # type: ignore[type-var]
        assert all(one.costs[cost] < other.costs[cost] for one, other in itertools.pairwise(front_rows))


def test_stage_3_is_compared_alone(tmp_path: Path) -> None:
    journal = SearchJournal(tmp_path / "journal.jsonl")
    earlier = [_candidate(0, 3, 0.5), _candidate(1, 2, None), _candidate(0, 1, 0.75, stage=2)]
    journal.add(*earlier)
    assert list(journal.comparable) == earlier
    journal.add(_candidate(0, 5, 0.25, stage=3), _candidate(1, 4, 0.125, stage=3))
    assert [record.stage for record in journal.comparable] == [3, 3]
    assert front(journal.comparable, "parameters") == journal.candidates[4:] + journal.candidates[3:4]
    assert SearchJournal(tmp_path / "journal.jsonl").candidates == journal.candidates


def test_best_is_the_first_with_the_highest_score() -> None:
    candidates = [
        _candidate(0, 1, None),
        *(_candidate(n, 1, score) for n, score in enumerate((-0.75, -0.25, -0.5, -0.25), 1)),
    ]
    assert best(candidates).index == 2
    with pytest.raises(TrainingFailed, match="every candidate failed; the first: failure 4"):
        best([_candidate(4, 1, None), _candidate(5, 1, None)])
