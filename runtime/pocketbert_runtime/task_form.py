"""What a task's configuration says about the outputs of its network."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from pocketbert_runtime.task_config import TaskConfig


class TaskForm(abc.ABC):
    """The form of a task: its outputs and inputs, without training and answers.

    Args:
      config: configuration of the head.

    Attributes:
      kind: value of `TaskConfig.kind`.
      config: see the argument.
      output_names: the head's own names of its outputs, in order.
      per_token: whether there is an output for each token.
      window_options: fields of `WindowOptions` that apply to the inputs.
      has_independent_labels: whether each logit is a decision of its own, with a sigmoid.
      has_classes: whether an example has one of the labels as its class.
      separates_pairs: whether the network reads the texts of a pair one by one, as rows that follow one another, and
        gives one answer for both; `GatheredOutputs` then has an entry for each pair.
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
    def parts(self) -> Mapping[str, TaskForm]:
        """The tasks of several heads by name; empty for one head."""
        return {}

    def of_output(self, name: str) -> TaskForm:
        """The task that an output belongs to."""
        return self

    def max_length(self, positions: int) -> int:
        """Maximum sequence length of a network with so many positions."""
        return positions
