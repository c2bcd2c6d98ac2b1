"""Evaluates a network on labelled texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples
from pocketbert.tasks.decisions import DecisionChoice, described_decisions
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake
from pocketbert.tasks.outputs import check_finite
from pocketbert.tasks.scores import Scores
from pocketbert_runtime.forward import Forward

if TYPE_CHECKING:
    from pocketbert.tasks.texts import TextTask


class TextEvaluator:
    """Scores a network on texts; see `SupervisedTask.evaluator`."""

    def __init__(
        self,
        task: TextTask,
        forward: Forward,
        encoded: EncodedExamples,
        metrics: Sequence[str],
        data: Examples,
        *,
        show_progress: bool = False,
        choice: DecisionChoice | None = None,
    ) -> None:
        self._task, self._forward, self._encoded, self._metrics, self._data = task, forward, encoded, metrics, data
        self._show_progress, self._choice = show_progress, choice
        self._logits: np.ndarray | None = None

    def metrics(self, when: str) -> dict[str, float]:
        """See `Evaluator.metrics`."""
        data = self._data
        assert data.labels is not None
        predictions = self._predictions(when)
        return self._task.compute(self._metrics, data.labels, predictions, data.groups, self._logits)

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """See `Evaluator.scores`. Includes the scores per class; without `metrics`, computes them."""
        data = self._data
        assert data.labels is not None
        predictions = self._predictions("at the end")
        scores = self._task.score(data.labels, predictions, self._metrics, main_metric, data.groups, self._logits)
        known, pairs = scores.metrics if metrics is None else metrics, data.pairs is not None
        return dataclasses.replace(scores, metrics=known, pairs=pairs, decisions=self.decisions())

    def decisions(self) -> Mapping[str, Any] | None:
        """The last answers' thresholds, for `Scores.decisions`."""
        labels, logits = self._data.labels, self._logits
        if labels is None or logits is None or self.task.decisions is None:
            return None
        right = labels == self._task.decide(logits)
        return described_decisions(self.task, self._task.certainty(logits), right)

    def mistakes(self, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """See `Evaluator.mistakes`."""
        assert self._logits is not None
        return self._task.mistakes(self._data, self._logits, most)

    def _predictions(self, when: str) -> np.ndarray:
        outputs = check_finite(when, self._forward(self._encoded, show_progress=self._show_progress))
        self._logits = outputs["logits"]
        if self._choice is not None:
            self._task = type(self._task)(self.task_at(1.0))
        return self._task.decide(self._logits)

    @property
    def task(self) -> TaskConfig:
        """See `Evaluator`."""
        return self._task.config

    def task_at(self, temperature: float) -> TaskConfig:
        """`task` for the last logits divided by a temperature."""
        if self._choice is None or self._logits is None or self._data.labels is None:
            return self.task
        return self._task.choose(self._choice, self._logits / np.float32(temperature), self._data.labels)

    def temperature(self) -> float:
        """The divisor for the last logits with the smallest loss on these examples; 1 if none helps."""
        if self._logits is None or self._data.labels is None:
            return 1.0
        return self._task.temperature(self._logits, self._data.labels)

    @property
    def top_probability(self) -> float | None:
        """The best class's mean probability for the last logits; None for tasks without classes."""
        return None if self._logits is None else self._task.top_probability(self._logits)
