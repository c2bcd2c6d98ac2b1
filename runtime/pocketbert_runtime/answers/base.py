"""The interface of answers: predictions for texts by a network."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.task_form import TaskForm


class Evidence(NamedTuple):
    """What an answer rests on.

    Attributes:
      outputs: the network's outputs for the input's rows, without padding.
      others: for questions, the best answers, as `n_best` gives them.
      offsets: int64 `[T, 2]`, start and end of each of the rows' T tokens in code points; (0, 0) for special tokens.
    """

    outputs: Outputs
    others: tuple[Mapping[str, Any], ...]
    offsets: np.ndarray = np.zeros((0, 2), np.int64)


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

    def near_ties(
        self, expected: Mapping[str, Any], answer: Mapping[str, Any], tolerance: float, evidence: Evidence
    ) -> Collection[str]:
        """Names the members of an answer that may differ because two choices nearly tie.

        Args:
          expected: an answer to the same input on another runtime or processor.
          answer: the answer.
          tolerance: largest difference of a probability or score between runtimes.
          evidence: what `answer` rests on.
        """
        return ()
