"""Outputs and labels of several heads: which of them belong to which head.

An output has the name of its head in front: `intent_logits`, `slots_token_logits`. The labels of a text are one row of
numbers, float32: a class or a score has one column, several labels have one each, and the tags of words, which come
last, have one for each token of the longest row. Class indices and tags are whole numbers, which float32 holds exactly.
A text without a label for a head has NaN in the head's columns, or -1 for tags. In the form that the tasks take, its
classes and its several labels are -1, and its score is NaN.
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
    """The labels of all heads as one array, float32 [N, columns]; see the module.

    Args:
      task: the task with these heads.
      labels: by head: int32 [N] classes, float32 [N] scores, int32 [N, labels], or int32 [N, max_length] tags; float32
        with NaN for texts without a label.
    """
    columns = [labels[name].reshape(len(labels[name]), -1) for name in _in_order(task)]
    return np.concatenate([column.astype(np.float32) for column in columns], axis=1)


def part_labels(task: Task, labels: Any) -> dict[str, tf.Tensor]:
    """The labels of each head from those of `packed_labels`, in the form that the head's task takes."""
    import tensorflow as tf

    labels, start, split = tf.cast(labels, tf.float32), 0, {}
    tagged = [name for name, part in task.parts.items() if part.per_token]
    fixed = sum(_columns(part) for part in task.parts.values())
    for name in _in_order(task):
        part = task.parts[name]
        if part.per_token:
            # All tagged heads have equally many.
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
    """The soft labels of all heads as one array, float64 [N, columns]: those of tags last, token by token.

    Args:
      task: the task with these heads.
      soft: by head: [N, labels], or [N, max_length, labels] for tags.
    """
    columns = [soft[name].reshape(len(soft[name]), -1) for name in _in_order(task)]
    return np.concatenate([column.astype(np.float64) for column in columns], axis=1)


def part_soft_labels(task: Task, soft: tf.Tensor) -> dict[str, tf.Tensor]:
    """The soft labels of each head, [B, labels] or [B, max_length, labels], from those of `packed_soft_labels`."""
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
    """The sum over heads of a term of each, times the weight of the head's loss."""
    weighted = [loss_weight(part.config) * terms[name] for name, part in task.parts.items()]
    return sum(weighted[1:], weighted[0])


def _in_order(task: Task) -> list[str]:
    """The heads in the order of their columns: those with tags last."""
    return sorted(task.parts, key=lambda name: task.parts[name].per_token)


def _columns(part: Task) -> int:
    """Columns of a head's labels; 0 for tags, whose number depends on the length."""
    if part.per_token:
        return 0
    return len(part.config.labels) if part.config.rules.label_form == "multi_label" else 1
