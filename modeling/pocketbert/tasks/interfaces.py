"""Interfaces for tasks: rows with labels, decisions and evaluators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake
from pocketbert_runtime.forward import Outputs

if TYPE_CHECKING:
    from pocketbert.tasks.scores import Scores


class Rows(Protocol):
    """Data as token rows, ready to score a network's outputs.

    Attributes:
      encoded: the rows; a question has one row per window.
    """

    encoded: EncodedExamples

    @property
    def decided(self) -> np.ndarray | Mapping[str, np.ndarray] | None:
        """Indices of deciding outputs, such as words' first tokens, or these by output; None for all."""

    def __len__(self) -> int:
        """Number of examples."""

    def score(self, outputs: Outputs, metric: str) -> tuple[float, np.ndarray | None]:
        """The metric and each example's correctness; None if answers are not right or wrong."""

    def resampled(self, outputs: Outputs, metric: str) -> Callable[[np.ndarray], float]:
        """Computes the metric on the examples at some indices, int64 [N], with repetitions; see `score_interval`."""


class Decisions(NamedTuple):
    """Decisions by two networks, for the verification gate.

    Attributes:
      same: bool, whether the networks agree.
      near_tie: bool, whether the first network is close to a tie.
      counted: the decisions' name in messages.
    """

    same: np.ndarray
    near_tie: np.ndarray
    counted: str


class Evaluator(Protocol):
    """Scores a network on labelled data, any number of times."""

    @property
    def task(self) -> TaskConfig:
        """The network's configuration, with the thresholds from the last evaluation."""

    def metrics(self, when: str) -> dict[str, float]:
        """Computes metrics with the current weights; `when`, such as `after step 7`, goes into error messages."""

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """Returns the metrics with a baseline.

        Args:
          main_metric: the metric to report first; None for the task's.
          metrics: result of `metrics` for the current weights, if known.
        """

    def mistakes(self, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """Up to `most` wrong answers in the last call to `scores`, the most certain first; None for all."""
