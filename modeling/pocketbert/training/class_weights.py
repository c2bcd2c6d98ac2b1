"""Class weights in the loss, for data sets with rare classes."""

from __future__ import annotations

import csv
import math
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

    The loss is the weighted sum of cross-entropies divided by the number of examples, as in Keras.

    Args:
      text: `none`; `balanced`, N / (C · n) for a class with n of N examples, where C classes occur, as in
        scikit-learn's `compute_class_weight`; or `label=weight,…`, where missing labels have weight 1.
      task: the task.
      labels: int32 `[N]`, classes of the training examples.

    Returns:
      float32 `[classes]`, or None for `none`.

    Raises:
      UserError: the task is not a classification, or lacks one of the labels.
    """
    import numpy as np

    from pocketbert.tasks.registry import get_task

    if text == NONE:
        return None
    if not get_task(task).has_classes:
        raise UserError(f"class_weights needs a classification task; received {text} for {task.kind}; leave it out")
    if text == BALANCED:
        counts = np.bincount(labels, minlength=len(task.labels))
        occur = counts > 0
        weights = np.ones(len(counts), np.float32)
        weights[occur] = counts.sum() / (occur.sum() * counts[occur])
        return weights
    weights_by_label = parse_class_weights(text)
    unknown = [label for label in weights_by_label if label not in task.labels]
    if unknown:
        raise UserError(
            f"class_weights must name labels of the task, {', '.join(map(repr, task.labels))[:200]}; received "
            f"{', '.join(map(repr, unknown))[:200]}"
        )
    return np.asarray([weights_by_label.get(label, 1.0) for label in task.labels], np.float32)
