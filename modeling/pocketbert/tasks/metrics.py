"""Metrics from scikit-learn, SciPy and seqeval, as fractions.

Undefined metrics are 0.0, so that a run can continue: Matthews correlation for constant predictions or labels
(scikit-learn's value), F1 without a positive label or prediction (as in GLUE's reference code), and Pearson and
Spearman correlation for constant predictions or labels. The last is a departure: SciPy gives NaN, and JSON has no NaN.
AUROC is 0.5 if all examples have one class.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(labels, predictions)


def _f1(labels: np.ndarray, predictions: np.ndarray, positive: int) -> float:
    from sklearn.metrics import f1_score

    if not (np.isin(labels, (0, 1)).all() and np.isin(predictions, (0, 1)).all()):
        raise ValueError("f1 needs the classes 0 and 1; received another class")
    # Binary even if only one class occurs.
    return f1_score(labels == positive, predictions == positive, zero_division=0)


def _matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(labels, predictions)


def _pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import pearsonr

    return 0.0 if _constant(labels, predictions) else pearsonr(labels, predictions)[0]


def _spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return 0.0 if _constant(labels, predictions) else spearmanr(labels, predictions)[0]


def _constant(labels: np.ndarray, predictions: np.ndarray) -> bool:
    return bool(np.ptp(labels) == 0 or np.ptp(predictions) == 0)


def _micro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    # Each (example, label) is one decision. scikit-learn would read a single column as two classes.
    return f1_score(labels.ravel(), predictions.ravel(), zero_division=0)


def _macro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    if labels.ndim == 1:
        return f1_score(labels, predictions, average="macro", zero_division=0)
    return statistics.fmean(f1_score(*column, zero_division=0) for column in zip(labels.T, predictions.T, strict=True))


def _subset_accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(labels, predictions)


def auroc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the receiver operating characteristic.

    Args:
      labels: `[N]`, class indices; or 0 and 1 `[N, labels]`.
      scores: `[N, classes]` or `[N, labels]`: logits or other scores, larger for more likely classes.
    Returns:
      The mean over labels, or over classes against all others (Hand & Till 2001 discuss both forms), except labels
      without both kinds of examples. For two classes, the second class's area.
    """
    from scipy.special import softmax
    from sklearn.metrics import roc_auc_score

    if labels.ndim == 1:
        classes = scores.shape[1]
        if classes == 2:
            labels, scores = labels[:, np.newaxis], scores[:, 1:] - scores[:, :1]
        else:
            # Softmax makes a class's scores comparable between examples.
            labels, scores = labels[:, np.newaxis] == np.arange(classes), softmax(scores, axis=1)
    areas = [
        roc_auc_score(gold, score) for gold, score in zip(labels.T, scores.T, strict=True) if 0 < gold.sum() < len(gold)
    ]
    return float(statistics.fmean(areas)) if areas else 0.5


METRICS: dict[str, Callable[..., float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
    "micro_f1": _micro_f1,
    "macro_f1": _macro_f1,
    "subset_accuracy": _subset_accuracy,
}
# For spans in tagged texts; accuracy is for tags.
TAG_METRICS = ("f1", "precision", "recall", "accuracy")
MULTI_LABEL_METRICS = ("micro_f1", "macro_f1", "subset_accuracy")
AUROC, F1_OF = "auroc", "f1:"


def names_of_f1(labels: Iterable[str]) -> tuple[str, ...]:
    """Names for F1 on single labels, such as `f1:spam`."""
    return tuple(F1_OF + label for label in labels)


def listed_metrics(names: Iterable[str]) -> str:
    """Lists metric names for a message, with `f1:LABEL` for all labels."""
    return ", ".join(dict.fromkeys(F1_OF + "LABEL" if name.startswith(F1_OF) else name for name in names))


def compute(
    names: Iterable[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    groups: Sequence[str] | None = None,
    *,
    positive: int = 1,
    classes: Sequence[str] = (),
    logits: np.ndarray | None = None,
) -> dict[str, float]:
    """Scores predictions.

    Args:
      names: keys of `METRICS`, `auroc`, or `f1:LABEL` for F1 on one label.
      labels: `[N]`, class indices or scores; for `MULTI_LABEL_METRICS` on several labels 0 and 1 `[N, labels]`.
      predictions: as `labels` (not logits), in the same order.
      groups: each example's group, or None.
      positive: the positive class for F1.
      classes: class or label names, for `f1:LABEL`.
      logits: for `auroc`; without them, the predictions are the scores.
    Returns:
      name → value, each between −1 and 1. With groups, `name` is the unweighted mean over groups, and `name_group` each
      group's value, by first occurrence.
    Raises:
      ValueError: a name is unknown, shapes differ, there are no examples, or a value is not finite.
    """
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    names = tuple(names)
    # Macro-F1 is the mean over classes, or over labels in a multi-label task.
    either = all(name in ("macro_f1", AUROC) or name.startswith(F1_OF) for name in names)
    dimensions = labels.ndim if either else 2 if set(names) & {"micro_f1", "subset_accuracy"} else 1
    if labels.shape != predictions.shape or labels.ndim != dimensions or not len(labels):
        raise ValueError(
            f"labels and predictions must be [N{', labels' if dimensions == 2 else ''}] with N > 0; received "
            f"{labels.shape} and {predictions.shape}; take the argmax of logits"
        )
    if not (np.isfinite(labels).all() and np.isfinite(predictions).all()):
        raise ValueError("labels and predictions must be finite; received NaN or infinity")
    if groups is not None:
        return _compute_by_group(names, labels, predictions, np.asarray(groups), positive, classes, logits)
    values = {}
    for name in names:
        if name == AUROC:
            values[name] = auroc(labels, _as_scores(predictions, len(classes)) if logits is None else logits)
            continue
        if name.startswith(F1_OF) and name.removeprefix(F1_OF) in classes:
            index = list(classes).index(name.removeprefix(F1_OF))
            gold, predicted = (
                array == index if array.ndim == 1 else array[:, index] for array in (labels, predictions)
            )
            values[name] = _micro_f1(gold, predicted)
            continue
        if name not in METRICS:
            raise ValueError(f"unknown metric {name!r}; the metrics are {', '.join(METRICS)}")
        # float64: SciPy sums in the precision of its input.
        pair = labels.astype(np.float64), predictions.astype(np.float64)
        values[name] = float(METRICS[name](*pair, positive) if name == "f1" else METRICS[name](*pair))
    return values


def _as_scores(predictions: np.ndarray, classes: int) -> np.ndarray:
    """Converts decisions to scores: 1 for the predicted class."""
    return predictions if predictions.ndim == 2 else np.eye(classes)[predictions.astype(np.int64)]


def _compute_by_group(
    names: Sequence[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    groups: np.ndarray,
    positive: int,
    classes: Sequence[str],
    logits: np.ndarray | None,
) -> dict[str, float]:
    by_group = {}
    for group in dict.fromkeys(groups.tolist()):
        rows = groups == group
        of_group = None if logits is None else logits[rows]
        by_group[group] = compute(
            names, labels[rows], predictions[rows], positive=positive, classes=classes, logits=of_group
        )
    means = {name: statistics.fmean(values[name] for values in by_group.values()) for name in names}
    return means | {f"{name}_{group}": values[name] for name in names for group, values in by_group.items()}


def class_results(names: Sequence[str], labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
    """Scores each class in a classification, with scikit-learn.

    Args:
      names: class labels, by index.
      labels: int `[N]`, class indices.
      predictions: int `[N]`.
    Returns:
      `macro_f1`: mean F1 over the classes among labels or predictions. `by_label`: label → `precision`, `recall`, `f1`
      and `support`. `confusion_matrix`: a row per label and a column per prediction.
    """
    from sklearn.metrics import confusion_matrix, f1_score, precision_recall_fscore_support

    every = np.arange(len(names))
    columns = precision_recall_fscore_support(labels, predictions, labels=every, zero_division=0)
    return {
        "macro_f1": float(f1_score(labels, predictions, average="macro", zero_division=0)),
        "by_label": {
            name: {"precision": float(precision), "recall": float(recall), "f1": float(f1), "support": int(support)}
            for name, precision, recall, f1, support in zip(names, *columns, strict=True)
        },
        "confusion_matrix": confusion_matrix(labels, predictions, labels=every).tolist(),
    }


def label_results(names: Sequence[str], labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
    """Scores each label in a multi-label task, with scikit-learn; returns `by_label` as in `class_results`.

    Args:
      names: labels, by column.
      labels: 0 and 1, `[N, labels]`.
      predictions: as `labels`.
    """
    from sklearn.metrics import precision_recall_fscore_support

    columns = zip(names, labels.T, predictions.T, strict=True)
    results = {
        name: precision_recall_fscore_support(gold, predicted, labels=[1], average=None, zero_division=0)
        for name, gold, predicted in columns
    }
    return {
        "by_label": {
            name: {"precision": float(p[0]), "recall": float(r[0]), "f1": float(f[0]), "support": int(s[0])}
            for name, (p, r, f, s) in results.items()
        }
    }


def tag_scores(names: Sequence[str], gold: list[list[str]], predicted: list[list[str]]) -> dict[str, float]:
    """Computes metrics with seqeval, whose counts are conlleval's, as fractions.

    Args:
      names: names in `TAG_METRICS`.
      gold: word tags for each text.
      predicted: as `gold`.
    """
    from seqeval.metrics import accuracy_score
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    precision, recall, f1, _ = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)
    values = {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy_score(gold, predicted)}
    return {name: float(values[name]) for name in names}


def tag_results(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, Any]:
    """Scores each span type with seqeval, for `Scores.classes`."""
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

    types = sorted({label for tags in (gold, predicted) for label, _, _ in get_entities(tags)})
    columns = precision_recall_fscore_support(gold, predicted, average=None, zero_division=0)
    return {
        "by_label": {
            name: {"precision": float(precision), "recall": float(recall), "f1": float(f1), "support": int(support)}
            for name, precision, recall, f1, support in zip(types, *columns, strict=True)
        }
    }


def root_mean_square(values: np.ndarray) -> float:
    """Root mean square over all values; 1 if all are 0."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) or 1.0
