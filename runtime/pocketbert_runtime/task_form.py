"""A network's outputs and inputs, by its task's configuration."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

from pocketbert_runtime.task_config import TaskConfig


class TaskForm(abc.ABC):
    """A task's form: its outputs and inputs, without training and answers.

    Args:
      config: the head's configuration.
    Attributes:
      kind: value for `TaskConfig.kind`.
      config: see the argument.
      output_names: the head's names for its outputs, in order.
      per_token: whether each token has an output.
      window_options: fields in `WindowOptions` for the inputs.
      has_independent_labels: whether each logit is a separate decision, with a sigmoid.
      has_classes: whether each example has one label as its class.
      separates_pairs: whether the network reads a pair's texts one by one, as consecutive rows, and gives one answer
        for both; `GatheredOutputs` then has an entry for each pair.
    """

    kind: ClassVar[str]
    output_names: tuple[str, ...] = ("logits",)
    per_token: ClassVar[bool] = False
    window_options: ClassVar[tuple[str, ...]] = ()
    has_independent_labels: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    separates_pairs: bool = False

    def __init__(self, config: TaskConfig) -> None:
        self.config = config

    @property
    def parts(self) -> Mapping[str, Any]:
        """Tasks by head name, for several heads; empty for one head."""
        return {}

    def of_output(self, name: str) -> TaskForm:
        """Returns the task for an output."""
        return self

    def max_length(self, positions: int) -> int:
        """Maximum sequence length in a network with so many positions."""
        return positions
