"""Multi-label classification: any number of labels per text or pair, each with its own probability."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from pocketbert_runtime.answers.base import Evidence
from pocketbert_runtime.answers.probabilities import check_labels, described_probabilities, sigmoid_of, threshold_logits
from pocketbert_runtime.answers.texts import TextAnswers


class LabelAnswers(TextAnswers):
    """Any number of labels for a text or a pair."""

    kind = "multi_label"
    has_independent_labels = True

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Int32 [N, labels], 1 if the probability reaches 0.5 or the label's threshold."""
        return (self._above_thresholds(logits) >= 0).astype(np.int32)

    def _above_thresholds(self, logits: np.ndarray) -> np.ndarray:
        thresholds = threshold_logits(self.config.decisions, of_classes=False)
        return logits if thresholds is None else logits - thresholds

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """A sigmoid for each label, float64 [N, labels]."""
        return sigmoid_of(logits)

    def describe(
        self, logits: np.ndarray, *, top_k: int | None = None, soft_labels: bool = False, **options: Any
    ) -> list[dict[str, Any]]:
        """Returns `labels`, and `probabilities` by label or the best as `top`; see `described_probabilities`."""
        names = self.config.labels
        check_labels(names, logits)
        return [
            {
                "labels": [label for label, is_given in zip(names, decided, strict=True) if is_given],
                **described_probabilities(names, sigmoid_of(values), top_k, soft_labels=soft_labels),
            }
            for values, decided in zip(logits, self.decide(logits), strict=True)
        ]

    def near_ties(
        self, expected: Mapping[str, Any], answer: Mapping[str, Any], tolerance: float, evidence: Evidence
    ) -> Collection[str]:
        """The labels, if each of the differing ones has a probability nearer to its threshold than the tolerance."""
        decisions, names = self.config.decisions, self.config.labels
        thresholds = (decisions and decisions.thresholds) or [0.5] * len(names)
        others, labels = expected["labels"], answer["labels"]
        # A label twice, in another order or outside the list is no near tie.
        if not isinstance(others, list) or others != [name for name in names if name in others]:
            return ()
        tied = all(
            abs(answer["probabilities"][name] - threshold) < tolerance
            for name, threshold in zip(names, thresholds, strict=True)
            if (name in others) != (name in labels)
        )
        return ("labels",) if tied else ()
