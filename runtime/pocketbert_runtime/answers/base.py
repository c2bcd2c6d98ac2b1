"""The interface of answers: predictions for texts by a network."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from pocketbert_runtime.forward import Forward
from pocketbert_runtime.task_form import TaskForm


class Answers(TaskForm):
    """A task that answers: a kind with its configuration, without training. `pocketbert` adds that."""

    @abc.abstractmethod
    def predict(
        self, inputs: Sequence[Any], forward: Forward, tokenizer: Any, max_length: int, **options: Any
    ) -> list[dict[str, Any]]:
        """Predicts for each input, in order.

        Args:
          inputs: texts, pairs of texts, or pairs of question and paragraph.
          forward: runs the network.
          tokenizer: the network's tokenizer.
          max_length: maximum sequence length of an input or a window.
          **options: options of the task.

        Returns:
          A dictionary of JSON values for each input.

        Raises:
          UserError: an answer is not finite.
        """
