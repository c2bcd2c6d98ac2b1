"""The labels of data and of a model: the same names, perhaps in another order.

Published MNLI models number its three classes in several ways; read by number, the answers of a good one are wrong.
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
from pocketbert.tasks.registry import supervised_task


def logit_positions(model: TaskConfig, data: TaskConfig) -> np.ndarray:
    """Where the data's labels stand among a model's logits.

    Args:
      model: the model's task. Labels named `LABEL_0`, `LABEL_1`… are taken to be the data's, in their order.
      data: the data's task.

    Returns:
      int32 `[labels]`: of each of the data's labels the position of its logit; empty for regression.

    Raises:
      UserError: the one is not of the other's kind, or has other labels.
    """
    unnamed = tuple(f"LABEL_{index}" for index in range(len(data.labels)))
    # The rule itself: labels of another kind of task do not match the logits.
    if model.kind != data.kind or (model.labels != unnamed and set(model.labels) != set(data.labels)):
        raise UserError(
            f"the data's labels must be the model's, {', '.join(model.labels) or model.kind}; "
            f"received {f'{data.name} with ' if data.name else ''}{', '.join(data.labels) or data.kind}"
        )
    order = data.labels if model.labels == unnamed else model.labels
    return np.array([order.index(label) for label in data.labels], np.int32)


def in_order_of(model: TaskConfig, data: TaskConfig, examples: Examples) -> Examples:
    """The examples with their labels as positions among a model's logits; see `logit_positions`."""
    positions = logit_positions(model, data)
    if examples.labels is None or not len(positions):
        return examples
    if examples.labels.ndim == 2:
        # A column for each label.
        return dataclasses.replace(examples, labels=examples.labels[:, np.argsort(positions)])
    return dataclasses.replace(examples, labels=positions[examples.labels])


def named(model: TaskConfig, name: str | None) -> TaskConfig:
    """A model's task under the name of the data's, if that is given: a model need not say what it was trained on."""
    return dataclasses.replace(model, name=name) if name else model


def order_of_numbers(model: TaskConfig, task_name: str | None, labels: Sequence[str] | None) -> TaskConfig | None:
    """The task whose order of labels the whole numbers in a user's file count in.

    Args:
      model: the model's task, classification or multi_label.
      task_name: the data set that the user says the file is of, or None.
      labels: the classes in the order in which the user says that the file counts them, or None.

    Returns:
      A task to give to `in_order_of`; None where nothing says what the numbers stand for.
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
    """Examples with their labels in the order of a model's logits, however they are given.

    Args:
      model: the model's task; None for a bare encoder, which has no use for labels.
      given: examples that are in that order, a run's data (its development examples), a file with the columns text and
        label, or None.

    Raises:
      UserError: a file that cannot be read, or labels that are not the model's.
    """
    if isinstance(given, TaskData):
        if model is None or not isinstance(given.dev, Examples):
            return given.dev
        return in_order_of(model, given.task, given.dev)
    if not isinstance(given, str | os.PathLike):
        return given
    return read_table(given, text_column="text")[0] if model is None else supervised_task(model).read(given)
