"""The labels of data and of a model: the same names, perhaps in another order.

Published MNLI models number its three classes in several ways; read by number, the answers of a good one are wrong.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
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
