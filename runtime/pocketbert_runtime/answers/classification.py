"""Classification: one label for a text or a pair."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from pocketbert_runtime.answers.base import Evidence
from pocketbert_runtime.answers.probabilities import (
    check_labels,
    described_probabilities,
    probabilities_of,
    threshold_logits,
)
from pocketbert_runtime.answers.texts import TextAnswers


class ClassAnswers(TextAnswers):
    """One label out of at least two, for a text or a pair."""

    kind = "classification"
    has_classes = True

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Class indices, int32 [N], also for rejected answers."""
        thresholds = threshold_logits(self.config.decisions, of_classes=True)
        above = logits if thresholds is None else logits - thresholds
        return above.argmax(axis=1).astype(np.int32)

    def rejected(self, logits: np.ndarray) -> np.ndarray:
        """Whether the answer is None because its probability is below the threshold, bool [N]."""
        least = 0.0 if self.config.decisions is None else self.config.decisions.reject_below or 0.0
        return probabilities_of(logits).max(axis=1) < least

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Softmax over classes, float64 [N, labels]."""
        return probabilities_of(logits)

    def describe(
        self, logits: np.ndarray, *, top_k: int | None = None, soft_labels: bool = False, **options: Any
    ) -> list[dict[str, Any]]:
        """Returns `label`, None if rejected, and `probabilities` by label, or the `top_k` best labels as `top`.

        For `soft_labels` see `described_probabilities`.
        """
        check_labels(self.config.labels, logits)
        labels, rows = self.config.labels, (self.decide(logits), self.rejected(logits), probabilities_of(logits))
        return [
            {
                "label": None if rejected else labels[index],
                **described_probabilities(labels, values, top_k, soft_labels=soft_labels),
            }
            for index, rejected, values in zip(*rows, strict=True)
        ]

    def near_ties(
        self, expected: Mapping[str, Any], answer: Mapping[str, Any], tolerance: float, evidence: Evidence
    ) -> Collection[str]:
        """The label, if the two probabilities differ by less than twice the tolerance, or the threshold is as near."""
        decisions, values = self.config.decisions, answer["probabilities"]
        labels = expected["label"], answer["label"]
        if None in labels:
            least = 0.0 if decisions is None else decisions.reject_below or 0.0
            tied = abs(max(values.values()) - least) < tolerance
        elif labels[0] not in values.keys():
            tied = False
        elif decisions is not None and decisions.thresholds is not None:
            tied = abs(values[self.config.labels[0]] - decisions.thresholds[0]) < tolerance
        else:
            tied = values[labels[1]] - values[labels[0]] < 2 * tolerance
        return ("label",) if tied else ()
