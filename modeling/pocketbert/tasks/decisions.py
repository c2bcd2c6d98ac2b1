"""Thresholds for answers, chosen on a dev split: for two classes, for several labels, and for rejected answers.

A threshold lies between two examples' values, so that rounding moves no example to the other side. Among equally good
thresholds, the nearest to 0.5 wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.tasks.metrics import F1_OF
from pocketbert_runtime.decision_config import DecisionConfig

# Beyond these logits, probabilities differ from 0 and 1 in the last digits only.
_MOST_LOGIT = 30.0
# Distance between a threshold above or below all logits and the nearest one.
_MARGIN = 1.0
# Sums in another order differ by less.
_SAME = 1e-12
_MOST_ROUNDS = 100
_COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)

Counts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class DecisionChoice:
    """Thresholds to choose on the dev split.

    Attributes:
      metric: metric to maximize with the decision thresholds; None for no such thresholds.
      keep: share of right answers not to reject; None to reject nothing.
    """

    metric: str | None = None
    keep: float | None = None


def class_thresholds(
    logits: np.ndarray, labels: np.ndarray, metric: str, *, positive: int, classes: Sequence[str]
) -> DecisionConfig:
    """Chooses the threshold for two classes with the highest metric.

    Args:
      logits: [N, 2].
      labels: int [N], 0 or 1.
      metric: `accuracy`, `f1`, `macro_f1`, `matthews`, `f1:LABEL`, or `auroc`; thresholds for `auroc` maximize `f1`.
      positive: the positive class for `f1`.
      classes: class names, for `f1:LABEL`.
    """
    if metric.startswith(F1_OF):
        positive = list(classes).index(metric.removeprefix(F1_OF))
    scores = logits[:, positive].astype(np.float64) - logits[:, 1 - positive]
    cuts, counts = _cuts(scores, labels == positive, includes=positive == 0)
    values = {"accuracy": _accuracy, "macro_f1": _macro_f1, "matthews": _matthews}.get(metric, _f1)(*counts)
    threshold = _probability(_nearest(cuts, values))
    return DecisionConfig(thresholds=(1 - threshold, threshold) if positive else (threshold, 1 - threshold))


def label_thresholds(logits: np.ndarray, labels: np.ndarray, metric: str) -> DecisionConfig:
    """Chooses the thresholds for several labels with the highest metric.

    Dinkelbach's method (1967) chooses them together for `micro_f1`, and is exact. For all other metrics, each label has
    the threshold with its highest F1; this gives the highest macro-F1, too. A label without examples keeps 0.5;
    `micro_f1` may raise this threshold, for fewer false answers.

    Args:
      logits: [N, labels].
      labels: 0 or 1, [N, labels].
      metric: the metric's name.
    """
    columns = [
        _cuts(logits[:, index].astype(np.float64), gold == 1, includes=True) for index, gold in enumerate(labels.T)
    ]
    if metric != "micro_f1":
        chosen = [_nearest(cuts, _f1(*counts)) for cuts, counts in columns]
        return DecisionConfig(thresholds=tuple(map(_probability, chosen)))
    positives, f1, chosen = float(labels.sum()), 0.0, [0.0] * len(columns)
    for _ in range(_MOST_ROUNDS):
        right = given = 0.0
        for index, (cuts, (hits, false_alarms, _, _)) in enumerate(columns):
            # The best decisions for the F1 so far; their own F1 is at least as high.
            values = 2 * hits - f1 * (hits + false_alarms)
            chosen[index] = _nearest(cuts, values)
            place = int(np.flatnonzero(cuts == chosen[index])[0])
            right, given = right + hits[place], given + hits[place] + false_alarms[place]
        improved = 2 * right / (given + positives) if given + positives else 0.0
        if improved <= f1 + _SAME:
            break
        f1 = improved
    return DecisionConfig(thresholds=tuple(map(_probability, chosen)))


def reject_threshold(top: np.ndarray, right: np.ndarray, keep: float) -> DecisionConfig:
    """Chooses the highest probability threshold that keeps a share of the right answers.

    Args:
      top: each answer's probability, [N].
      right: whether it is right, bool [N]. Without a right answer nothing is rejected.
      keep: minimum share of right answers with a probability at or above the threshold.
    """
    kept = np.sort(top[right].astype(np.float64))[::-1]
    if not len(kept):
        return DecisionConfig(reject_below=0.0)
    # 0.9 of 10 are 9, however their product is rounded.
    least = kept[max(1, int(np.ceil(keep * len(kept) - 1e-9))) - 1]
    below = top[top < least]
    return DecisionConfig(reject_below=float((least + below.max()) / 2) if len(below) else float(least / 2))


def coverage_of(top: np.ndarray, right: np.ndarray, reject_below: float) -> list[dict[str, float]]:
    """Compares coverage with accuracy, at the threshold and when 100 %, 95 %, 90 % … of all examples get an answer.

    Args:
      top: each answer's probability, [N]; N > 0.
      right: whether it is right, bool [N].
      reject_below: the threshold, for the first row.
    Returns:
      Rows with `reject_below`, `coverage` (share of examples with an answer), `accuracy` (among these; 0 without one)
      and `kept` (their share of all right answers).
    """
    ordered = np.sort(top)[::-1]
    places = [int(np.ceil(share * len(top) - 1e-9)) - 1 for share in _COVERAGES]
    thresholds = [reject_below, *(float(ordered[max(place, 0)]) for place in places)]
    rows = []
    for threshold in dict.fromkeys(thresholds):
        answered = top >= threshold
        hits = int((right & answered).sum())
        rows.append(
            {
                "reject_below": round(threshold, 6),
                "coverage": float(answered.mean()),
                "accuracy": hits / int(answered.sum()) if answered.any() else 0.0,
                "kept": hits / int(right.sum()) if right.any() else 0.0,
            }
        )
    return rows


def described_decisions(
    config: TaskConfig, top: np.ndarray | None = None, right: np.ndarray | None = None
) -> Mapping[str, Any] | None:
    """Decisions for results and pages: `thresholds` by label, or `reject_below` and `coverage`; None for the default.

    Args:
      config: the task.
      top: the answers' probabilities, [N], for the coverage.
      right: whether they are right, bool [N].
    """
    decisions = config.decisions
    if decisions is None:
        return None
    if decisions.thresholds is not None:
        return {"thresholds": dict(zip(config.labels, decisions.thresholds, strict=True))}
    assert decisions.reject_below is not None and top is not None and right is not None
    return {"reject_below": decisions.reject_below, "coverage": coverage_of(top, right, decisions.reject_below)}


def _cuts(scores: np.ndarray, positive: np.ndarray, *, includes: bool) -> tuple[np.ndarray, Counts]:
    """Possible thresholds, ascending, the default 0 among them, and their hits, false alarms, misses, and the rest.

    A score at a threshold is above it if `includes`.
    """
    order = np.argsort(scores, kind="stable")
    ordered, gold = scores[order], positive[order]
    # Examples below each threshold: none, and up to the last of equal scores.
    below = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > 0, [True]]))
    low, high = np.append(-np.inf, ordered)[below], np.append(ordered, np.inf)[below]
    has_default = (low < 0) & (high >= 0) if includes else (low <= 0) & (high > 0)
    # The lowest and the highest threshold have scores on one side only.
    middle = (
        np.where(below > 0, low, high - 2 * _MARGIN) + np.where(below < len(ordered), high, low + 2 * _MARGIN)
    ) / 2
    cuts = np.where(has_default, 0.0, middle)
    misses = np.concatenate([[0], np.cumsum(gold)])[below].astype(np.float64)
    hits, rest = gold.sum() - misses, below - misses
    return np.clip(cuts, -_MOST_LOGIT, _MOST_LOGIT), (hits, (~gold).sum() - rest, misses, rest)


def _nearest(cuts: np.ndarray, values: np.ndarray) -> float:
    """The threshold with the highest value, and among several the nearest to 0."""
    best = cuts[values >= values.max() - _SAME]
    return float(best[np.abs(best).argmin()])


def _probability(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _accuracy(hits: np.ndarray, false_alarms: np.ndarray, misses: np.ndarray, rest: np.ndarray) -> np.ndarray:
    return (hits + rest) / (hits + false_alarms + misses + rest)


def _f1(hits: np.ndarray, false_alarms: np.ndarray, misses: np.ndarray, rest: np.ndarray) -> np.ndarray:
    return _ratio(2 * hits, 2 * hits + false_alarms + misses)


def _macro_f1(hits: np.ndarray, false_alarms: np.ndarray, misses: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Mean over the classes among labels or predictions, as in scikit-learn."""
    errors = false_alarms + misses
    occurring = (hits + errors > 0).astype(np.float64) + (rest + errors > 0)
    return (_f1(hits, false_alarms, misses, rest) + _f1(rest, misses, false_alarms, hits)) / occurring


def _matthews(hits: np.ndarray, false_alarms: np.ndarray, misses: np.ndarray, rest: np.ndarray) -> np.ndarray:
    product = (hits + false_alarms) * (hits + misses) * (rest + false_alarms) * (rest + misses)
    return _ratio(hits * rest - false_alarms * misses, np.sqrt(product))
