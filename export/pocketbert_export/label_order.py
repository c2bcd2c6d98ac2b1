"""Match the labels of data with a model's: the same names, possibly in another order.

Published MNLI models number the three classes in several ways. Matching by number would score a good model as wrong.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples, LabelledData
from pocketbert.data.glue import GLUE, glue_task
from pocketbert.data.tables import read_table
from pocketbert.data.task_data import TaskData
from pocketbert.data.xnli import XNLI
from pocketbert.errors import UserError
from pocketbert.tasks.registry import get_task, supervised_task


def logit_positions(model: TaskConfig, data: TaskConfig) -> np.ndarray:
    """Positions of the data's labels among a model's logits.

    Args:
      model: the model's task. Labels named `LABEL_0`, `LABEL_1`… are taken as the data's, in their order.
      data: the data's task.

    Returns:
      int32 `[labels]`: position of the logit of each of the data's labels; empty for regression.

    Raises:
      UserError: the tasks differ in kind or labels.
    """
    unnamed = tuple(f"LABEL_{index}" for index in range(len(data.labels)))
    # The rule itself: labels of another kind of task do not match the logits.
    same_kind = data.kind in (model.kind, *get_task(model).data_kinds)
    if not same_kind or (model.labels != unnamed and set(model.labels) != set(data.labels)):
        raise UserError(
            f"the data's labels must be the model's, {', '.join(model.labels) or model.kind}; "
            f"received {f'{data.name} with ' if data.name else ''}{', '.join(data.labels) or data.kind}"
        )
    order = data.labels if model.labels == unnamed else model.labels
    return np.array([order.index(label) for label in data.labels], np.int32)


def in_order_of(model: TaskConfig, data: TaskConfig, examples: Examples) -> Examples:
    """Returns the examples with labels as positions among a model's logits; see `logit_positions`."""
    positions = logit_positions(model, data)
    if examples.labels is None or not len(positions):
        return examples
    if examples.labels.ndim == 2:
        # One column per label.
        return dataclasses.replace(examples, labels=examples.labels[:, np.argsort(positions)])
    return dataclasses.replace(examples, labels=positions[examples.labels])


def named(model: TaskConfig, name: str | None) -> TaskConfig:
    """A model's task under the name of the data's task, if given; models may not record what they were trained on."""
    return dataclasses.replace(model, name=name) if name else model


def order_of_numbers(model: TaskConfig, task_name: str | None, labels: Sequence[str] | None) -> TaskConfig | None:
    """The task that defines the order of the whole numbers in a user's file.

    Args:
      model: the model's task, classification or multi_label.
      task_name: name of the data set, or None.
      labels: classes in the order of their numbers, or None.

    Returns:
      A task for `in_order_of`; None if nothing defines the numbers.
    """
    if labels:
        return TaskConfig(kind=model.kind, labels=tuple(labels))
    if task_name:
        return XNLI if task_name == XNLI.name else glue_task(task_name).task
    own = XNLI if model.name == XNLI.name else GLUE[model.name].task if model.name in GLUE else None
    if own is not None and set(own.labels) == set(model.labels):
        return own
    unnamed = model.labels == tuple(f"LABEL_{index}" for index in range(len(model.labels)))
    return model if unnamed else None


def examples_for(
    model: TaskConfig | None, given: LabelledData | TaskData | str | os.PathLike[str] | None
) -> LabelledData | None:
    """Returns examples from any source with labels in the order of a model's logits.

    Args:
      model: the model's task; None for a bare encoder, which uses no labels.
      given: examples in that order, a run's data (its development examples are used), a path of a table with the
        columns text and label, or None.

    Raises:
      UserError: the file cannot be read, or its labels differ from the model's.
    """
    if isinstance(given, TaskData):
        if model is None or not isinstance(given.dev, Examples):
            return given.dev
        return in_order_of(model, given.task, given.dev)
    if not isinstance(given, str | os.PathLike):
        return given
    return read_table(given, text_column="text")[0] if model is None else supervised_task(model).read(given)
