"""Regression: one number for a text or a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from pocketbert_runtime.answers.texts import TextAnswers


class ScoreAnswers(TextAnswers):
    """A score for a text or a pair."""

    kind = "regression"

    def describe(self, logits: np.ndarray, **options: Any) -> list[dict[str, Any]]:
        """Returns `score`."""
        return [{"score": float(score)} for score in logits]
