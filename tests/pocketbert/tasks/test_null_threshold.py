"""The threshold of the empty answer with the best score."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pocketbert.tasks.answer_scores import best_null_threshold


def _score_at(threshold: float, differences: np.ndarray, scores: np.ndarray, scores_if_not: np.ndarray) -> float:
    return float(np.mean(np.where(differences > threshold, scores_if_not, scores)))


def test_the_threshold_is_the_best_of_all_that_are_possible() -> None:
    random = np.random.default_rng(7)
    for _ in range(30):
        count = int(random.integers(1, 23))
        # Whole numbers: many are equal, and go to one side together.
        differences = random.integers(-4, 5, count).astype(float)
        # Both kinds may score: a right answer of which nothing is left, an answer where none is right.
        scores, unanswered = random.choice([0.0, 0.3, 1.0], count), random.choice([0.0, 0.0, 1.0], count)
        threshold, mean = best_null_threshold(differences, scores, unanswered)
        possible = {at: _score_at(at, differences, scores, unanswered) for at in [-99.0, *differences]}
        # Double precision, sums of two dozen.
        assert mean == pytest.approx(_score_at(threshold, differences, scores, unanswered), abs=1e-14)
        assert mean == pytest.approx(max(possible.values()), abs=1e-14)
        # Of equally good ones the least.
        reached = differences[differences <= threshold].max(initial=-99.0)
        assert all(score < mean - 1e-14 for at, score in possible.items() if at < reached)
        # In the middle between two whole numbers that stand next to one another, else at most 1 away.
        assert np.abs(differences - threshold).min() in (0.5, 1.0)


def test_the_threshold_is_that_of_squads_script_where_differences_differ() -> None:
    from official.nlp.tools import squad_evaluate_v2_0

    random = np.random.default_rng(11)
    compared = 0
    for _ in range(20):
        count = int(random.integers(2, 41))
        differences, impossible = random.normal(size=count), random.random(count) < 0.5
        scores = np.where(impossible, 0.0, random.random(count))
        names = [str(n) for n in range(count)]
        best, threshold = squad_evaluate_v2_0._find_best_thresh(
            dict.fromkeys(names, "text"),
            dict(zip(names, scores.tolist(), strict=True)),
            dict(zip(names, differences.tolist(), strict=True)),
            dict(zip(names, (~impossible).tolist(), strict=True)),
        )
        actual, mean = best_null_threshold(differences, scores, impossible)
        assert 100 * mean == pytest.approx(best, rel=1e-12)
        if actual >= differences.min():
            # The script's threshold is a question's own difference, and ours behind it, before the next.
            assert differences[differences <= actual].max() == threshold
            following = differences[differences > threshold].min(initial=threshold + 9)
            assert actual == pytest.approx(min((threshold + following) / 2, threshold + 1), rel=1e-12)
            compared += 1
    assert compared > 10


def test_never_to_answer_may_be_best() -> None:
    threshold, mean = best_null_threshold([0.5, -2.0, math.inf], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0])
    assert threshold == -3.0
    assert mean == pytest.approx(2 / 3)


def test_a_threshold_has_room_wherever_there_is_some() -> None:
    wide = best_null_threshold([4.0, -2.0], [0.0, 1.0], [1.0, 0.0])
    last = best_null_threshold([4.0, -2.0], [1.0, 1.0], [0.0, 0.0])
    without_words = best_null_threshold([math.inf, 4.0], [0.0, 1.0], [0.0, 0.0])
    assert (wide, last, without_words) == ((-1.0, 1.0), (5.0, 1.0), (5.0, 0.5))
    # Two neighbours among float64.
    below, above = 1.0, np.nextafter(1.0, 2.0)
    assert best_null_threshold([below, above], [1.0, 0.0], [0.0, 1.0]) == (below, 1.0)
    below, above = above, np.nextafter(above, 2.0)
    assert best_null_threshold([below, above], [1.0, 0.0], [0.0, 1.0]) == (below, 1.0)
