"""The interface of answers: predictions for texts by a network."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from pocketbert_runtime.forward import Forward
from pocketbert_runtime.task_form import TaskForm


class Answers(TaskForm):
    """A task that answers: a kind with its configuration; `pocketbert` adds training."""

    @abc.abstractmethod
    def predict(
        self, inputs: Sequence[Any], forward: Forward, tokenizer: Any, max_length: int, **options: Any
    ) -> list[dict[str, Any]]:
        """Predicts for each input, in order; returns a dictionary with JSON values for each.

        Args:
          inputs: texts, text pairs, or pairs of question and paragraph.
          forward: runs the network.
          tokenizer: the network's tokenizer.
          max_length: maximum tokens per input or window.
          **options: task options.
        Raises:
          UserError: an answer is not finite.
        """
