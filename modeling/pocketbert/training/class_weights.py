"""Weights of classes in the loss, so that rare ones count as much as frequent ones."""

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
    """Reads `label=weight,…`; {} for `none` and `balanced`.

    A label with a comma goes into double quotes together with its weight: `"yes, really=2",no=1`.

    Raises:
      UserError: the text is something else.
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
    """The factor of each class's examples in the loss.

    The loss stays Keras' mean over examples: the sum of weight times cross-entropy, divided by the number of examples.

    Args:
      text: `none`; `balanced`, N / (C · n) for each of the C classes that occur, n times in N examples, as
        scikit-learn's `compute_class_weight` has it; or `label=weight,…`, where a label that is not named has 1.
      task: the task.
      labels: int32 `[N]`, the training examples' classes.

    Returns:
      float32 `[classes]`, or None for `none`.

    Raises:
      UserError: the task is no classification, or has no such label.
    """
    import numpy as np

    from pocketbert.tasks.registry import get_task

    if text == NONE:
        return None
    if not get_task(task).has_classes:
        raise UserError(f"class_weights are for classification; received {text} for {task.kind}; leave it out")
    if text == BALANCED:
        counts = np.bincount(labels, minlength=len(task.labels))
        occur = counts > 0
        weights = np.ones(len(counts), np.float32)
        weights[occur] = counts.sum() / (occur.sum() * counts[occur])
        return weights
    given = parse_class_weights(text)
    unknown = [label for label in given if label not in task.labels]
    if unknown:
        raise UserError(
            f"class_weights must name labels of the task, {', '.join(map(repr, task.labels))[:200]}; received "
            f"{', '.join(map(repr, unknown))[:200]}"
        )
    return np.asarray([given.get(label, 1.0) for label in task.labels], np.float32)
