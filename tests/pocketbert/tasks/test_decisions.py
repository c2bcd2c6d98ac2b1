"""Thresholds of answers: the best of all by scikit-learn, and the decisions that follow from them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit, softmax
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    matthews_corrcoef,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.recipes import RECIPES
from pocketbert.tasks.decisions import (
    DecisionChoice,
    class_thresholds,
    coverage_of,
    label_thresholds,
    reject_threshold,
)
from pocketbert.tasks.registry import get_task
from pocketbert_export.checks.outputs import check_labels
from pocketbert_runtime.decision_config import DecisionConfig

TWO, FIVE = ("low", "high"), ("a", "b", "c", "d", "e")


def task(labels: tuple[str, ...], kind: str = "classification", **decisions: Any) -> Any:
    return get_task(TaskConfig(kind=kind, labels=labels, decisions=DecisionConfig(**decisions) if decisions else None))


def biased(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of two classes that miss most of a rare second class, and the labels."""
    random = np.random.default_rng(seed)
    labels = (random.random(count) < 0.2).astype(np.int32)
    # One digit gives ties.
    scores = np.round(2 * labels - 2.3 + random.normal(size=count), 1)
    return np.stack([random.normal(size=count), np.zeros(count)], 1).astype(np.float32) + np.stack(
        [-scores / 2, scores / 2], 1
    ).astype(np.float32), labels


SCIKIT = {
    "accuracy": accuracy_score,
    "f1": f1_score,
    "f1:high": f1_score,
    "f1:low": lambda gold, predicted: f1_score(gold, predicted, pos_label=0),
    "macro_f1": lambda gold, predicted: f1_score(gold, predicted, average="macro"),
    "matthews": matthews_corrcoef,
    # No threshold changes it, so F1 is maximized.
    "auroc": f1_score,
}


@pytest.mark.parametrize("metric", SCIKIT)
def test_threshold_of_two_classes_is_the_best(metric: str) -> None:
    for seed in range(3):
        logits, labels = biased(41, seed)
        decisions = class_thresholds(logits, labels, metric, positive=1, classes=TWO)
        decided = task(TWO, thresholds=decisions.thresholds).decide(logits)
        # Every prediction that a threshold on the probability can give.
        probabilities = softmax(logits.astype(np.float64), axis=1)[:, 1]
        cuts = np.concatenate([[-1.0], np.unique(probabilities)])
        best = max(SCIKIT[metric](labels, (probabilities > cut).astype(int)) for cut in cuts)
        assert SCIKIT[metric](labels, decided) == pytest.approx(best, abs=1e-12)
        # No example lies on the threshold.
        assert decisions.thresholds is not None and np.abs(probabilities - decisions.thresholds[1]).min() > 1e-9
    plain = task(TWO).decide(logits)
    assert SCIKIT["f1"](labels, plain) < SCIKIT["f1"](labels, decided) or metric in ("accuracy", "f1:low")


def test_f1_is_that_of_precision_recall_curve() -> None:
    logits, labels = biased(83, seed=7)
    decisions = class_thresholds(logits, labels, "f1", positive=1, classes=TWO)
    precision, recall, _ = precision_recall_curve(labels, logits[:, 1] - logits[:, 0])
    best = (2 * precision * recall / np.maximum(precision + recall, 1e-9)).max()
    assert f1_score(labels, task(TWO, thresholds=decisions.thresholds).decide(logits)) == pytest.approx(best)


def test_positive_class_may_be_the_first() -> None:
    logits, labels = biased(83, seed=3)
    swapped = class_thresholds(logits[:, ::-1], 1 - labels, "f1", positive=0, classes=TWO[::-1])
    usual = class_thresholds(logits, labels, "f1", positive=1, classes=TWO)
    assert usual.thresholds == pytest.approx(swapped.thresholds[::-1])  # type: ignore[index]
    assert usual.in_order([1, 0]).thresholds == usual.thresholds[::-1]  # type: ignore[index]


def several(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of three labels with different biases, and a label that no example has."""
    random = np.random.default_rng(seed)
    labels = (random.random([count, 4]) < [0.5, 0.2, 0.1, 0.0]).astype(np.int32)
    logits = 2 * labels - [1.0, 2.5, 0.2, 2.0] + random.normal(size=[count, 4])
    return np.round(logits, 1).astype(np.float32), labels


@pytest.mark.parametrize("metric", ["macro_f1", "auroc", "f1:b"])
def test_each_label_has_its_best_threshold(metric: str) -> None:
    logits, labels = several(61, seed=1)
    thresholds = label_thresholds(logits, labels, metric).thresholds
    assert thresholds is not None
    decided = task(FIVE[:4], "multi_label", thresholds=thresholds).decide(logits)
    for index in range(3):
        cuts = [-99.0, *np.unique(logits[:, index])]
        best = max(f1_score(labels[:, index], logits[:, index] > cut) for cut in cuts)
        assert f1_score(labels[:, index], decided[:, index]) == pytest.approx(best, abs=1e-12)
    # No threshold helps a label without examples.
    assert thresholds[3] == 0.5
    plain = [f1_score(labels[:, index], logits[:, index] >= 0) for index in range(3)]
    assert np.mean(plain) < f1_score(labels[:, :3], decided[:, :3], average="macro") - 0.02


@pytest.mark.parametrize("seed", range(4))
def test_micro_f1_is_the_best_of_all(seed: int) -> None:
    logits, labels = several(9, seed)
    columns = [[-99.0, *np.unique(column)] for column in logits.T[:3]]

    def micro_f1(cuts: tuple[float, ...]) -> float:
        # scikit-learn's function takes a hundred times as long.
        predicted, gold = logits[:, :3] > np.array(cuts), labels[:, :3] == 1
        return 2 * np.sum(predicted & gold) / max(np.sum(predicted) + np.sum(gold), 1)

    best_cuts = max(itertools.product(*columns), key=micro_f1)
    best = f1_score(labels[:, :3], logits[:, :3] > np.array(best_cuts), average="micro", zero_division=0)
    assert micro_f1(best_cuts) == pytest.approx(best, abs=1e-12)
    decisions = label_thresholds(logits[:, :3], labels[:, :3], "micro_f1")
    decided = task(FIVE[:3], "multi_label", thresholds=decisions.thresholds).decide(logits[:, :3])
    assert f1_score(labels[:, :3], decided, average="micro", zero_division=0) == pytest.approx(best, abs=1e-12)


def test_perfect_decisions_keep_the_default() -> None:
    logits = np.array([[3.0, -2.0], [-1.0, 4.0], [0.5, -0.25]], np.float32)
    labels = (logits > 0).astype(np.int32)
    for metric in ("micro_f1", "macro_f1"):
        assert label_thresholds(logits, labels, metric).thresholds == (0.5, 0.5)
    assert class_thresholds(logits, labels[:, 1], "f1", positive=1, classes=TWO).thresholds == (0.5, 0.5)


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1"])
def test_sure_decisions_keep_the_default(metric: str) -> None:
    # All logits of a label without examples are far below 0, those of a label that all have far above.
    random = np.random.default_rng(4)
    labels = np.array([[0, 1, index % 2] for index in range(23)], np.int32)
    logits = np.array([-6.0, 6.0, 0.0]) + random.normal(size=[23, 3])
    logits[:, 2] = 4 * labels[:, 2] - 2
    thresholds = label_thresholds(logits.astype(np.float32), labels, metric).thresholds
    assert thresholds == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(("gold", "positive"), itertools.product((0, 1), (0, 1)))
def test_sure_classes_keep_the_default(gold: int, positive: int) -> None:
    # Every threshold between the lowest probability and 0 gives the same answers.
    scores = np.linspace(3.0, 8.0, 11)
    logits = np.stack([-scores, scores], 1)[:, :: 1 if gold else -1].astype(np.float32)
    labels = np.full(11, gold, np.int32)
    assert class_thresholds(logits, labels, "accuracy", positive=positive, classes=TWO).thresholds == (0.5, 0.5)


@pytest.mark.parametrize("keep", [0.95, 0.9, 0.5, 1.0, 0.01])
@pytest.mark.parametrize("count", [10, 37])
def test_rejection_keeps_the_share(keep: float, count: int) -> None:
    random = np.random.default_rng(count)
    top = np.round(random.uniform(0.3, 1.0, count), 2)
    right = random.random(count) < top
    threshold = reject_threshold(top, right, keep).reject_below
    assert threshold is not None
    kept = np.mean(top[right] >= threshold)
    # scikit-learn's true positive rate: the largest of its thresholds that keeps the share.
    _, rates, thresholds = roc_curve(right, top, drop_intermediate=False)
    largest = thresholds[rates >= keep - 1e-9].max()
    assert kept >= keep - 1e-9 and kept == pytest.approx(np.mean(top[right] >= largest))
    # It rejects all that the largest one does, and lies between two probabilities.
    assert np.array_equal(top >= threshold, top >= largest) and np.abs(top - threshold).min() > 1e-9


def test_nothing_right_rejects_nothing() -> None:
    assert reject_threshold(np.array([0.4, 0.6]), np.zeros(2, bool), 0.95).reject_below == 0


def test_rejected_answers_are_none_with_probabilities() -> None:
    logits = np.array([[2.0, 0.0, 0.0], [0.1, 0.3, 0.0], [0.0, 0.0, 1.5]], np.float32)
    cautious = task(FIVE[:3], reject_below=0.5)
    answers, plain = cautious.describe(logits), task(FIVE[:3]).describe(logits)
    assert [answer["label"] for answer in answers] == ["a", None, "c"]
    assert [answer["label"] for answer in plain] == ["a", "b", "c"]
    assert [answer["probabilities"] for answer in answers] == [answer["probabilities"] for answer in plain]
    best = [{"label": "b", "probability": plain[1]["probabilities"]["b"]}]
    assert cautious.describe(logits, top_k=1)[1] == {"label": None, "top": best}
    # Metrics count the label that would have been given.
    assert cautious.decide(logits).tolist() == [0, 1, 2]


def test_coverage_equals_counts() -> None:
    random = np.random.default_rng(2)
    top = random.uniform(size=41)
    right = random.random(41) < top
    rows = coverage_of(top, right, 0.6)
    assert rows[0]["coverage"] == np.mean(top >= 0.6) and rows[0]["accuracy"] == right[top >= 0.6].mean()
    assert rows[0]["kept"] == pytest.approx(np.mean(top[right] >= 0.6))
    assert rows[1]["coverage"] == 1 and rows[1]["accuracy"] == right.mean() and rows[1]["kept"] == 1
    assert [row["coverage"] for row in rows[1:]] == sorted((row["coverage"] for row in rows[1:]), reverse=True)
    # Ranked by probability: accuracy rises as coverage falls, as its AUROC of more than 0.5 says.
    assert rows[-1]["accuracy"] > rows[1]["accuracy"] and roc_auc_score(right, top) > 0.6


def test_certainty_is_that_of_the_answer() -> None:
    logits = np.array([[0.0, 1.0], [0.0, 3.0]], np.float32)
    strict = task(TWO, thresholds=(0.2, 0.8))
    assert strict.decide(logits).tolist() == [0, 1]
    assert strict.certainty(logits) == pytest.approx(softmax(logits, axis=1)[[0, 1], [0, 1]])
    labels = task(FIVE[:2], "multi_label", thresholds=(0.9, 0.5))
    assert labels.decide(logits).tolist() == [[0, 1], [0, 1]]
    assert labels.certainty(logits) == pytest.approx(np.stack([1 - expit(logits[:, 0]), expit(logits[:, 1])], 1))
    assert labels.describe(logits)[0]["labels"] == ["b"]


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        (task(TWO, thresholds=(0.3, 0.7)), (TWO, "classification")),
        (task(FIVE, reject_below=0.6), (FIVE, "classification")),
        (task(FIVE, "multi_label", thresholds=(0.1, 0.3, 0.5, 0.7, 0.95)), (FIVE, "multi_label")),
    ],
)
def test_gate_compares_these_decisions(changed: Any, fields: Any) -> None:
    bounds = RECIPES["float32"].bounds
    logits = np.random.default_rng(8).normal(size=[300, len(fields[0])]).astype(np.float32)
    plain = task(*fields)
    # The shift moves answers at the thresholds only: it stops short of the next example at 0.5.
    if changed.config.decisions.reject_below is not None:
        odds = np.sort(logit(softmax(logits.astype(np.float64), axis=1).max(axis=1)))
        assert changed.rejected(logits).sum() not in (0, len(logits)) and len(odds) == 300
        moved = logits * 0.8
    elif fields[1] == "multi_label":
        moved = np.where(logits > 0, logits * 0.8, logits * 1.2)
    else:
        lead = logits[:, 1:] - logits[:, :1]
        moved = logits + np.where(lead > 0, -0.1 * lead, 0.2 * lead) * np.array([-0.5, 0.5])
    same = check_labels(plain, logits, moved, bounds)
    assert same is not None and same.passed and same.measured == 1
    differs = check_labels(changed, logits, moved, bounds)
    assert differs is not None and not differs.passed
    assert check_labels(changed, logits, logits, bounds).passed  # type: ignore[union-attr]


def test_rejection_near_the_threshold_is_a_near_tie() -> None:
    bounds = RECIPES["dynamic_wi8"].bounds
    cautious = task(FIVE[:3], reject_below=float(softmax([1.0, 0.0, 0.0]).max()))
    rejected = np.tile(np.array([[0.5, 0.0, 0.0]], np.float32), [50, 1])
    # Root mean square of (2, -1, -1) / 3. Two logits may move towards each other by a tolerance each.
    scale = np.sqrt(2) / 3
    for tolerances, passes in ((1, True), (4, False)):
        reference = np.float32([[1 + tolerances * bounds.rms_difference * scale, 0, 0]]).repeat(50, axis=0)
        check = check_labels(cautious, reference, rejected, bounds)
        assert check is not None and check.passed is passes
        assert "0 of 50 examples match" in check.reason


def test_choice_of_several_classes_is_rejection() -> None:
    random = np.random.default_rng(5)
    labels = random.integers(0, 5, 67).astype(np.int32)
    logits = (random.normal(size=[67, 5]) + 2 * np.eye(5)[labels]).astype(np.float32)
    chosen = task(FIVE).choose(DecisionChoice(keep=0.9), logits, labels)
    top, right = softmax(logits.astype(np.float64), axis=1).max(axis=1), logits.argmax(axis=1) == labels
    assert chosen.decisions == reject_threshold(top, right, 0.9)


@pytest.mark.parametrize(
    ("kind", "labels", "decisions", "message"),
    [
        ("classification", TWO, {}, "there must be thresholds or reject_below; received none"),
        ("classification", TWO, {"thresholds": (0.5, 0.5), "reject_below": 0.5}, "received both"),
        ("classification", TWO, {"thresholds": (0.5, 0.6)}, "the thresholds of two classes must sum to 1"),
        ("classification", FIVE, {"thresholds": (0.2,) * 5}, "two classes or several labels; received 5 classes"),
        ("multi_label", FIVE, {"thresholds": (0.2,) * 4}, "each label must have a threshold; received 4 for 5"),
        ("multi_label", FIVE, {"thresholds": (0.2, 0, 1, 0.3, 0.4)}, "thresholds must lie between 0 and 1"),
        ("multi_label", FIVE, {"reject_below": 0.5}, "reject_below is for one of several classes"),
        ("classification", FIVE, {"reject_below": 1.5}, r"reject_below must lie in \[0, 1\]; received 1.5"),
        ("classification", FIVE, {"reject_below": True}, r"reject_below must lie in \[0, 1\]; received True"),
        ("classification", FIVE, {"least": 0.5}, "the field 'least' is unknown"),
        ("regression", (), {"reject_below": 0.5}, "decisions are for one of several classes or several labels"),
        ("token_classification", FIVE, {"reject_below": 0.5}, "received them for 'token_classification'"),
    ],
)
def test_wrong_decisions_are_refused(kind: str, labels: Any, decisions: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TaskConfig(kind=kind, labels=labels, decisions=decisions)
