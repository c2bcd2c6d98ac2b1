"""GLUE's metrics, from scikit-learn and SciPy, as fractions of one.

Where a metric is undefined it is 0.0, so that a run can go on and be written down: Matthews correlation of constant
predictions or labels (scikit-learn's own value), F1 without a positive label or prediction (GLUE's reference code
calls scikit-learn, which gives 0 with a warning), Pearson and Spearman correlation of constant predictions or labels.
The last is a departure: SciPy gives NaN, which has no place in JSON and compares with nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pocketbert.configs import TaskConfig


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(labels, predictions)


def _f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    if not (np.isin(labels, (0, 1)).all() and np.isin(predictions, (0, 1)).all()):
        raise ValueError("f1 is that of class 1 of two; received another class")
    return f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0)


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


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
}


def compute(
    names: Iterable[str], labels: np.ndarray, predictions: np.ndarray, groups: Sequence[str] | None = None
) -> dict[str, float]:
    """Scores predictions.

    Args:
      names: keys of `METRICS`.
      labels: `[N]`, class indices or scores.
      predictions: `[N]`, class indices (not logits) or scores, in the order of `labels`.
      groups: the group of each example, or None.
    Returns:
      name → value, each between −1 and 1. With groups it is the mean over them, whatever their sizes, and `name_group`
      is that of each, in the order in which they first occur.
    Raises:
      ValueError: an unknown name, shapes that differ, no examples, or a value that is not finite.
    """
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.shape != predictions.shape or labels.ndim != 1 or not len(labels):
        raise ValueError(
            f"labels and predictions must be [N] with N > 0; received {labels.shape} and {predictions.shape}; "
            "of logits take the argmax"
        )
    if not (np.isfinite(labels).all() and np.isfinite(predictions).all()):
        raise ValueError("labels and predictions must be finite; received NaN or infinity")
    if groups is not None:
        return _compute_by_group(tuple(names), labels, predictions, np.asarray(groups))
    values = {}
    for name in names:
        if name not in METRICS:
            raise ValueError(f"no metric {name!r}; the metrics are {', '.join(METRICS)}")
        # float64: SciPy sums in the precision that it is given.
        values[name] = float(METRICS[name](labels.astype(np.float64), predictions.astype(np.float64)))
    return values


def _compute_by_group(
    names: Sequence[str], labels: np.ndarray, predictions: np.ndarray, groups: np.ndarray
) -> dict[str, float]:
    found = {
        group: compute(names, labels[groups == group], predictions[groups == group])
        for group in dict.fromkeys(groups.tolist())
    }
    means = {name: statistics.fmean(values[name] for values in found.values()) for name in names}
    return means | {f"{name}_{group}": values[name] for name in names for group, values in found.items()}


def default_metrics(task: TaskConfig) -> tuple[tuple[str, ...], str]:
    """The metrics for a task of the user's own, and the one that chooses the best checkpoint."""
    if task.kind == "regression":
        return ("pearson", "spearman"), "spearman"
    if task.kind == "classification":
        return (("accuracy", "f1") if len(task.labels) == 2 else ("accuracy",)), "accuracy"
    if task.kind == "span":
        return ("exact_match", "f1"), "f1"
    raise ValueError(f"metrics are known for classification, regression and spans; received {task.kind!r}")
