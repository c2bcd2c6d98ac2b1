"""Assigns outputs and labels to heads.

An output's name starts with its head: `intent_logits`, `slots_token_logits`. A text's labels are one row, float32: a
class or a score has one column, several labels have one each, and word tags come last, one for each token in the
longest row. float32 holds class indices and tags exactly. A text without a label for a head has NaN in the head's
columns, or -1 for tags. Tasks take -1 for its class or several labels, and NaN for its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pocketbert.tasks.base import Task
from pocketbert_runtime.heads_config import loss_weight

if TYPE_CHECKING:
    import tensorflow as tf

_T = TypeVar("_T")


def packed_labels(task: Task, labels: Mapping[str, np.ndarray]) -> np.ndarray:
    """Packs all heads' labels into one array, float32 [N, columns]; see the module.

    Args:
      task: the task with these heads.
      labels: by head: int32 [N] classes, float32 [N] scores, int32 [N, labels], or int32 [N, max_length] tags; float32
        with NaN for texts without a label.
    """
    columns = [labels[name].reshape(len(labels[name]), -1) for name in _in_order(task)]
    return np.concatenate([column.astype(np.float32) for column in columns], axis=1)


def part_labels(task: Task, labels: Any) -> dict[str, tf.Tensor]:
    """Splits labels from `packed_labels` by head, in the form for the head's task."""
    import tensorflow as tf

    labels, start, split = tf.cast(labels, tf.float32), 0, {}
    tagged = [name for name, part in task.parts.items() if part.per_token]
    fixed = sum(_columns(part) for part in task.parts.values())
    for name in _in_order(task):
        part = task.parts[name]
        if part.per_token:
            # All tagged heads have the same number.
            width = (tf.shape(labels)[1] - fixed) // len(tagged)
            first = fixed + tagged.index(name) * width
            split[name] = tf.cast(labels[:, first : first + width], tf.int32)
            continue
        columns = labels[:, start : start + _columns(part)]
        start += _columns(part)
        values = columns if part.config.rules.label_form == "multi_label" else columns[:, 0]
        if part.config.rules.label_form != "regression":
            values = tf.cast(tf.where(tf.math.is_nan(values), -1.0, values), tf.int32)
        split[name] = values
    return split


def packed_soft_labels(task: Task, soft: Mapping[str, np.ndarray]) -> np.ndarray:
    """Packs all heads' soft labels into one array, float64 [N, columns]: tags last, token by token.

    Args:
      task: the task with these heads.
      soft: by head: [N, labels], or [N, max_length, labels] for tags.
    """
    columns = [soft[name].reshape(len(soft[name]), -1) for name in _in_order(task)]
    return np.concatenate([column.astype(np.float64) for column in columns], axis=1)


def part_soft_labels(task: Task, soft: tf.Tensor) -> dict[str, tf.Tensor]:
    """Splits soft labels from `packed_soft_labels` by head: [B, labels] or [B, max_length, labels]."""
    import tensorflow as tf

    counts = {name: len(part.config.labels) for name, part in task.parts.items()}
    tags = sum(count for name, count in counts.items() if task.parts[name].per_token)
    length = (tf.shape(soft)[1] - (sum(counts.values()) - tags)) // max(tags, 1)
    start, split = 0, {}
    for name in _in_order(task):
        shape = [length, counts[name]] if task.parts[name].per_token else [counts[name]]
        width = counts[name] * (length if task.parts[name].per_token else 1)
        split[name] = tf.reshape(soft[:, start : start + width], [-1, *shape])
        start += width
    return split


def weighted_sum(task: Task, terms: Mapping[str, Any]) -> Any:
    """Sums one term per head, times the head's loss weight."""
    weighted = [loss_weight(part.config) * terms[name] for name, part in task.parts.items()]
    return sum(weighted[1:], weighted[0])


def _in_order(task: Task) -> list[str]:
    """Heads in column order: tags last."""
    return sorted(task.parts, key=lambda name: task.parts[name].per_token)


def _columns(part: Task) -> int:
    """A head's label columns; 0 for tags: their number depends on the length."""
    if part.per_token:
        return 0
    return len(part.config.labels) if part.config.rules.label_form == "multi_label" else 1
