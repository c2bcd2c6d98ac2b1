"""Label order in a known task's data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_runtime.label_names import label_positions


def in_label_order(data: TaskData, labels: Sequence[str] | None) -> TaskData:
    """Puts a task's labels into another order.

    Args:
      data: data with one class per example.
      labels: the task's labels in logit order, compared without case; None for the task's own order.
    Raises:
      UserError: the labels are not the task's.
    """
    if labels is None:
        return data
    own_labels = data.task.labels
    positions = label_positions(labels, own_labels)
    if positions is None:
        raise UserError(
            f"{argument('labels')} must be the labels of {data.task.name} in any order, "
            f"{','.join(own_labels) or 'none'}; received {','.join(labels)}"
        )
    numbers = np.argsort(positions).astype(np.int32)

    def moved(examples: Examples) -> Examples:
        soft = None if examples.soft_labels is None else examples.soft_labels[:, list(positions)]
        labels = None if examples.labels is None else numbers[examples.labels]
        return dataclasses.replace(examples, labels=labels, soft_labels=soft)

    parts = {name: getattr(data, name) for name in ("train", "dev", "augmented", "undivided", "test")}
    changed: dict[str, Any] = {name: moved(part) for name, part in parts.items() if isinstance(part, Examples)}
    task = dataclasses.replace(data.task, labels=tuple(own_labels[position] for position in positions))
    return dataclasses.replace(data, task=task, **changed)
