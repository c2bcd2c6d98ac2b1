"""Class weights in the loss, for data sets with rare classes."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError

if TYPE_CHECKING:
    import numpy as np

NONE, BALANCED = "none", "balanced"


def parse_class_weights(text: str) -> dict[str, float]:
    """Parses `label=weight,…`; returns {} for `none` and `balanced`.

    Quote a label that contains a comma together with its weight: `"yes, really=2",no=1`.

    Raises:
      UserError: the text has another form, or names a label twice.
    """
    if not isinstance(text, str):
        raise UserError(f"class_weights must be a text such as 'spam=3,ham=1'; received {text!r}")
    if text in (NONE, BALANCED):
        return {}
    weights: dict[str, float] = {}
    for part in next(csv.reader([text]), []) or [""]:
        label, _, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not label or not 0 < weight < math.inf:
            raise UserError(
                f"class_weights must be none, balanced or label=weight,… with positive numbers; received {text!r}"
            )
        if label in weights:
            raise UserError(f"class_weights must name each label once; received {label!r} twice")
        weights[label] = weight
    return weights


def class_weights(text: str, task: TaskConfig, labels: np.ndarray) -> np.ndarray | None:
    """Computes the loss weight of each class.

    The loss is the weighted sum of the losses divided by their number, not by the sum of the weights, as in Keras: by
    the number of examples, of words for tags, of windows for questions, and of all labels of all examples for several
    labels.

    Args:
      text: `none`; `balanced`; or `label=weight,…`, where missing labels have weight 1. `balanced` is N / (C · n) for
        a class with n of N examples, words or questions, where C classes occur, as in scikit-learn's
        `compute_class_weight`. Of several labels, each has the weight (N - n) / n where it is given and 1 where it is
        not, as PyTorch's `BCEWithLogitsLoss` suggests for its `pos_weight`; labels that all or no examples have keep 1.
      task: the task.
      labels: training labels as `Task.class_targets` gives them, `[N]`, or `[N, classes]` for several labels.

    Returns:
      float32 `[classes]`, or None for `none`.

    Raises:
      UserError: the task has no classes, or lacks one of the labels.
    """
    import numpy as np

    from pocketbert.tasks.registry import get_task

    if text == NONE:
        return None
    classes = get_task(task).weighted_classes
    if not classes:
        raise UserError(f"class_weights needs a task with classes; {task.kind} has none; received {text}; leave it out")
    if text == BALANCED:
        several = labels.ndim == 2
        counts = labels.sum(axis=0, dtype=np.int64) if several else np.bincount(labels, minlength=len(classes))
        occur = (counts > 0) & (counts < len(labels))
        if not occur.any():
            raise UserError(
                f"class_weights=balanced needs training examples of different classes, {_listed(classes)}; all have "
                "the same; leave it out"
            )
        weights = np.ones(len(counts), np.float32)
        balanced = (len(labels) - counts[occur]) / counts[occur] if several else None
        weights[occur] = len(labels) / (occur.sum() * counts[occur]) if balanced is None else balanced
        return weights
    weights_by_label = parse_class_weights(text)
    unknown = [label for label in weights_by_label if label not in classes]
    if unknown:
        raise UserError(f"class_weights must name labels of the task, {_listed(classes)}; received {_listed(unknown)}")
    return np.asarray([weights_by_label.get(label, 1.0) for label in classes], np.float32)


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels))[:200]
