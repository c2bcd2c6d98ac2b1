from __future__ import annotations

import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import METRICS, compute
from pocketbert.tasks.registry import supervised_task

# TP 3, FN 1, FP 2, TN 1.
LABELS = np.asarray([1, 1, 1, 1, 0, 0, 0], np.int32)
PREDICTIONS = np.asarray([1, 1, 1, 0, 1, 1, 0], np.int32)
# float64 sums of a few terms, in another order than the library's: some units of 2.2e-16.
EXACT = 1e-14


def test_classification_by_hand() -> None:
    values = compute(["accuracy", "f1", "matthews"], LABELS, PREDICTIONS)
    assert values["accuracy"] == pytest.approx(4 / 7, abs=EXACT)
    # precision 3/5, recall 3/4
    assert values["f1"] == pytest.approx(2 * (3 / 5) * (3 / 4) / (3 / 5 + 3 / 4), abs=EXACT)
    # (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN))
    assert values["matthews"] == pytest.approx((3 * 1 - 2 * 1) / np.sqrt(5 * 4 * 3 * 2), abs=EXACT)
    assert all(type(value) is float for value in values.values())


def test_f1_is_of_class_one() -> None:
    assert compute(["f1"], 1 - LABELS, 1 - PREDICTIONS)["f1"] == pytest.approx(2 * 1 / (2 * 1 + 2 + 1), abs=EXACT)


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def _ranks(a: np.ndarray) -> np.ndarray:
    """Mean rank of equals."""
    return np.asarray([(a < x).sum() + ((a == x).sum() + 1) / 2 for x in a])


def test_correlations_from_their_definitions() -> None:
    generator = np.random.default_rng(5)
    labels = np.round(generator.uniform(0, 5, 23) * 2) / 2  # with equal scores, as STS-B has
    predictions = labels + generator.normal(size=23)
    values = compute(["pearson", "spearman"], labels.astype(np.float32), predictions)
    assert values["pearson"] == pytest.approx(_pearson(labels, predictions), abs=EXACT)
    assert values["spearman"] == pytest.approx(_pearson(_ranks(labels), _ranks(predictions)), abs=EXACT)
    assert abs(values["pearson"] - values["spearman"]) > 1e-3


@pytest.mark.filterwarnings("error")
def test_constant_predictions_give_zero_and_no_warning() -> None:
    constant = np.zeros_like(LABELS)
    assert compute(["f1", "matthews"], LABELS, constant) == {"f1": 0.0, "matthews": 0.0}
    assert compute(["f1"], constant, constant) == {"f1": 0.0}
    scores = np.asarray([1.0, 2.5, 4.0], np.float32)
    assert compute(["pearson", "spearman"], scores, np.full(3, 0.7)) == {"pearson": 0.0, "spearman": 0.0}


def test_accuracy_of_three_classes() -> None:
    assert compute(["accuracy"], np.asarray([0, 1, 2, 2]), np.asarray([0, 2, 2, 2])) == {"accuracy": 0.75}


def test_a_mean_over_groups_counts_each_group_once() -> None:
    # ur: 1 of 4 right; en: 2 of 2; de: 1 of 1. Over all examples it would be 4 of 7.
    groups = ["ur", "en", "ur", "ur", "de", "en", "ur"]
    labels = np.asarray([0, 1, 2, 0, 2, 0, 1])
    predictions = np.asarray([0, 1, 1, 2, 2, 0, 2])
    scores = compute(["accuracy"], labels, predictions, groups)
    assert scores == {
        "accuracy": pytest.approx((1 / 4 + 1 + 1) / 3, abs=EXACT),
        "accuracy_ur": 0.25,
        "accuracy_en": 1.0,
        "accuracy_de": 1.0,
    }
    assert list(scores) == ["accuracy", "accuracy_ur", "accuracy_en", "accuracy_de"]
    two = compute(["accuracy", "f1"], LABELS, PREDICTIONS, ["a"] * 4 + ["b"] * 3)
    assert list(two) == ["accuracy", "f1", "accuracy_a", "accuracy_b", "f1_a", "f1_b"]
    # a: 3 hits, 1 miss; b: 2 false alarms.
    assert (two["f1_a"], two["f1_b"]) == (pytest.approx(6 / 7, abs=EXACT), 0.0)


@pytest.mark.parametrize(
    ("names", "labels", "predictions", "message"),
    [
        (["accuracy"], [0, 1], [[0.1, 0.9], [0.2, 0.8]], "take the argmax"),
        (["accuracy"], [0, 1], [0], r"received \(2,\) and \(1,\)"),
        (["accuracy"], [], [], "N > 0"),
        (["pearson"], [0.0, 1.0], [0.0, float("nan")], "finite"),
        (["f1"], [0, 2], [0, 1], "needs the classes 0 and 1"),
        (["bleu"], [0, 1], [0, 1], "the metrics are accuracy, f1, matthews, pearson, spearman"),
    ],
)
def test_what_cannot_be_scored(names: list[str], labels: list, predictions: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute(names, np.asarray(labels), np.asarray(predictions))


def test_metrics_for_a_users_task() -> None:
    two = TaskConfig(kind="classification", labels=("no", "yes"))
    three = TaskConfig(kind="classification", labels=("a", "b", "c"))
    assert supervised_task(two).default_metrics == (("accuracy", "f1"), "accuracy")
    assert supervised_task(three).default_metrics == (("accuracy",), "accuracy")
    assert supervised_task(TaskConfig(kind="regression")).default_metrics == (("pearson", "spearman"), "spearman")
    assert {"accuracy", "f1", "pearson", "spearman"} < set(METRICS)
    assert supervised_task(TaskConfig(kind="span")).default_metrics == (("exact_match", "f1"), "f1")
    with pytest.raises(UserError, match="embedding or several; received masked_lm"):
        supervised_task(TaskConfig(kind="masked_lm"))
