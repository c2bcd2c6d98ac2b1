"""Class weights in the loss, for data with rare classes."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert_runtime.heads_config import described_heads

if TYPE_CHECKING:
    import numpy as np

NONE, BALANCED = "none", "balanced"


def parse_class_weights(text: str) -> dict[str, float | None]:
    """Parses `label=weight,…`; returns {} for `none` and `balanced`.

    For several heads, a part is `head:label=weight`, or `head=balanced` with None as its weight.

    Quote a label that contains a comma together with its weight: `"yes, really=2",no=1`.

    Raises:
      UserError: the text has another form, or names a label twice.
    """
    if not isinstance(text, str):
        raise UserError(f"class_weights must be a text such as 'spam=3,ham=1'; received {text!r}")
    if text in (NONE, BALANCED):
        return {}
    weights: dict[str, float | None] = {}
    for part in next(csv.reader([text]), []) or [""]:
        label, _, number = part.rpartition("=")
        try:
            weight = None if number == BALANCED else float(number)
        except ValueError:
            weight = math.nan
        if not label or not (weight is None or 0 < weight < math.inf):
            raise UserError(
                f"class_weights must be none, balanced or label=weight,… with positive numbers; received {text!r}"
            )
        if label in weights:
            raise UserError(f"class_weights must name each label once; received {label!r} twice")
        weights[label] = weight
    return weights


def class_weights(text: str, task: TaskConfig, labels: np.ndarray) -> np.ndarray | None:
    """Computes each class's loss weight.

    The loss is the weighted sum divided by the number of losses, not by the sum of weights, as in Keras. That number
    counts examples, words for tags, windows for questions, and every label in every example for several labels.

    Args:
      text: `none`; `balanced`; or `label=weight,…`, where missing labels have weight 1. `balanced` is N / (C · n) for a
        class with n of N examples, words or questions, where C classes occur, as in scikit-learn's
        `compute_class_weight`. For several labels, each has the weight (N - n) / n where it is given and 1 where not,
        as PyTorch's `BCEWithLogitsLoss` suggests for its `pos_weight`; labels in all or no examples keep 1.
      task: the task.
      labels: training labels from `Task.class_targets`, `[N]`, or `[N, classes]` for several labels.
    Returns:
      float32 `[classes]`, or None for `none`.
    Raises:
      UserError: the task has no classes, or lacks one of the labels.
    """
    from pocketbert.tasks.registry import get_task

    if text == NONE:
        return None
    classes = get_task(task).weighted_classes
    if not classes:
        raise UserError(f"class_weights needs a task with classes; {task.kind} has none; received {text}; leave it out")
    if text == BALANCED:
        return _balanced(classes, labels)
    weights = parse_class_weights(text)
    if None in weights.values():
        raise UserError(f"class_weights must have numbers, as HEAD=balanced is for several heads; received {text!r}")
    return _weights(weights, classes)


def class_weights_by_head(text: str, task: TaskConfig, data: Any) -> dict[str, np.ndarray] | None:
    """Computes each class's loss weight for several heads; see `class_weights`.

    Args:
      text: `none`; `balanced` for all heads with classes; or `head=balanced` and `head:label=weight`, separated by
        commas. Missing heads and labels have weight 1.
      task: the task with the heads.
      data: training examples, `SharedTexts`.
    Returns:
      By head, float32 `[classes]`, without heads missing in the text. None for `none`.
    Raises:
      UserError: no head has classes, or a head or a label is unknown.
    """
    from pocketbert.tasks.registry import get_task

    if text == NONE:
        return None
    parts = {name: part for name, part in get_task(task).parts.items() if part.weighted_classes}
    if not parts:
        raise UserError(f"class_weights needs a head with classes; received {text} for {described_heads(task)}")
    weights = {}
    for name, chosen in _by_head(text, [*parts]).items():
        part, where = parts[name], f"head {name}: "
        if isinstance(chosen, str):
            weights[name] = _balanced(part.weighted_classes, part.class_targets(data.parts[name]), where)
        else:
            weights[name] = _weights(chosen, part.weighted_classes, where)
    return weights


def _by_head(text: str, heads: Sequence[str]) -> Mapping[str, str | dict[str, float | None]]:
    """By head, `balanced` or label weights."""
    if text == BALANCED:
        return dict.fromkeys(heads, BALANCED)
    chosen: dict[str, str | dict[str, float | None]] = {}
    for key, weight in parse_class_weights(text).items():
        name, colon, label = key.partition(":")
        of_head = chosen.setdefault(name, BALANCED if weight is None else {})
        if name not in heads or isinstance(of_head, str) != (weight is None) or bool(colon) == (weight is None):
            raise UserError(
                "class_weights of several heads must be balanced, HEAD=balanced, or HEAD:LABEL=WEIGHT for each label, "
                f"of the heads {', '.join(heads)}; received {key!r}"
            )
        if not isinstance(of_head, str):
            of_head[label] = weight
    return chosen


def _balanced(classes: Sequence[str], labels: np.ndarray, where: str = "") -> np.ndarray:
    import numpy as np

    several = labels.ndim == 2
    counts = labels.sum(axis=0, dtype=np.int64) if several else np.bincount(labels, minlength=len(classes))
    occur = (counts > 0) & (counts < len(labels))
    if not occur.any():
        raise UserError(
            f"{where}class_weights=balanced needs training examples of different classes, {_listed(classes)}; all have "
            "the same; leave it out"
        )
    weights = np.ones(len(counts), np.float32)
    balanced = (len(labels) - counts[occur]) / counts[occur] if several else None
    weights[occur] = len(labels) / (occur.sum() * counts[occur]) if balanced is None else balanced
    return weights


def _weights(weights: Mapping[str, float | None], classes: Sequence[str], where: str = "") -> np.ndarray:
    import numpy as np

    unknown = [label for label in weights if label not in classes]
    if unknown:
        raise UserError(
            f"{where}class_weights must name labels of the task, {_listed(classes)}; received {_listed(unknown)}"
        )
    return np.asarray([weights.get(label, 1.0) for label in classes], np.float32)


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels))[:200]
