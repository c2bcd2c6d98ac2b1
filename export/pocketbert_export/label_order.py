"""The labels of data and of a model: the same names, perhaps in another order.

Published MNLI models number its three classes in several ways; read by number, the answers of a good one are wrong.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.glue import GLUE
from pocketbert.errors import UserError


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
    if model.kind != data.kind or (model.labels != unnamed and set(model.labels) != set(data.labels)):
        raise UserError(
            f"the data's labels must be the model's, {', '.join(model.labels) or model.kind}; "
            f"received {data.name} with {', '.join(data.labels) or data.kind}"
        )
    order = data.labels if model.labels == unnamed else model.labels
    return np.array([order.index(label) for label in data.labels], np.int32)


def in_order_of(model: TaskConfig, data: TaskConfig, examples: Examples) -> Examples:
    """The examples with their labels as positions among a model's logits; see `logit_positions`."""
    positions = logit_positions(model, data)
    if examples.labels is None or not len(positions):
        return examples
    return dataclasses.replace(examples, labels=positions[examples.labels])


def named(model: TaskConfig, name: str | None) -> TaskConfig:
    """A model's task under the name of the data's, if that is given: a model need not say what it was trained on."""
    return dataclasses.replace(model, name=name) if name else model


def as_glue_numbers(model: TaskConfig, classes: np.ndarray) -> np.ndarray:
    """Classes by the numbers that GLUE gives them: F1 is that of class 1, whichever of a model's logits that is.

    Args:
      model: the model's task, under the data's name.
      classes: `[n]`, positions among the model's logits, or scores.

    Returns:
      `[n]`, anew where the name and the labels are those of one of GLUE's tasks; else as given.
    """
    glue = GLUE.get(model.name)
    if glue is None or not glue.task.labels or set(glue.task.labels) != set(model.labels):
        return classes
    return np.argsort(logit_positions(model, glue.task))[classes]
