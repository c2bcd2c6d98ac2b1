"""Match the data's labels with a model's: the same names, possibly in another order.

Published MNLI models number the three classes in several ways. Matching by number would score a good model as wrong.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples, LabelledData
from pocketbert.data.readers.glue import GLUE, glue_task
from pocketbert.data.readers.tables import has_labels, read_table
from pocketbert.data.readers.xnli import XNLI
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.tasks.registry import get_task, supervised_task
from pocketbert.tasks.texts import TextTask
from pocketbert_runtime.label_names import are_placeholders, label_positions


def logit_positions(model: TaskConfig, data: TaskConfig) -> np.ndarray:
    """Finds the data's labels among a model's logits.

    Args:
      model: the model's task; case does not matter in its labels. `LABEL_0`, `LABEL_1`… stand for the data's labels in
        their order.
      data: the data's task.
    Returns:
      int32 `[labels]`: the logit's position for each label in the data; empty for regression.
    Raises:
      UserError: the tasks differ in kind or labels.
    """
    unnamed = are_placeholders(model.labels) and len(model.labels) == len(data.labels)
    positions = list(range(len(data.labels))) if unnamed else label_positions(data.labels, model.labels)
    # Labels for another kind of task do not match the logits.
    same_kind = data.kind in (model.kind, *get_task(model).data_kinds)
    if not same_kind or positions is None:
        raise UserError(
            f"the data's labels must be the model's, {', '.join(model.labels) or model.kind}; "
            f"received {f'{data.name} with ' if data.name else ''}{', '.join(data.labels) or data.kind}"
        )
    return np.array(positions, np.int32)


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
    """Returns a model's task under the data's task name, if given; models may not record their training data."""
    return dataclasses.replace(model, name=name) if name else model


def with_label_names(model: TaskConfig, labels: Sequence[str] | None) -> TaskConfig:
    """Returns a model's task with names for its placeholder labels.

    Args:
      model: the model's task.
      labels: names in the order of the logits; None to keep the placeholders.
    Raises:
      UserError: the number of names is wrong.
    """
    if not labels or not are_placeholders(model.labels):
        return model
    if len(labels) != len(model.labels):
        raise UserError(
            f"{argument('labels')} must name each of the model's {len(model.labels)} logits; received {len(labels)}: "
            f"{','.join(labels)}"
        )
    return dataclasses.replace(model, labels=tuple(labels))


def order_of_numbers(model: TaskConfig, task_name: str | None, labels: Sequence[str] | None) -> TaskConfig | None:
    """Returns a task with the labels in the order of a file's whole numbers, or None if nothing defines the numbers.

    Args:
      model: the model's task, classification or multi_label.
      task_name: the data set's name, or None.
      labels: classes in the order of their numbers, or None.
    """
    if labels:
        return TaskConfig(kind=model.kind, labels=tuple(labels))
    if task_name:
        return XNLI if task_name == XNLI.name else glue_task(task_name).task
    own_task = XNLI if model.name == XNLI.name else GLUE[model.name].task if model.name in GLUE else None
    if own_task is not None and label_positions(own_task.labels, model.labels) is not None:
        return own_task
    return model if are_placeholders(model.labels) else None


def examples_for(
    model: TaskConfig | None, source: LabelledData | TaskData | str | os.PathLike[str] | None, *, train: bool = False
) -> LabelledData | None:
    """Returns examples from any source with labels in the order of a model's logits.

    Args:
      model: the model's task; None for a bare encoder, which uses no labels.
      source: examples in that order, a run's data, a path to a table with the column text and, for labels, label, or
        None.
      train: return a run's training examples, not its development examples.
    Raises:
      UserError: the file cannot be read, or its labels differ from the model's.
    """
    if isinstance(source, TaskData):
        examples = source.train if train else source.dev
        if model is None or not isinstance(examples, Examples):
            return examples
        return in_order_of(model, source.task, examples)
    if not isinstance(source, str | os.PathLike):
        return source
    task = None if model is None else supervised_task(model)
    if task is None or (isinstance(task, TextTask) and not has_labels(source, task.config.labels, ["text"])):
        return read_table(source, text_column="text")[0]
    return task.read(source)
