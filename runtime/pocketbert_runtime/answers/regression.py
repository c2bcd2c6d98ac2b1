"""Regression: one number for a text or a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from pocketbert_runtime.answers.texts import TextAnswers
from pocketbert_runtime.errors import UserError


class ScoreAnswers(TextAnswers):
    """A score for a text or a pair."""

    kind = "regression"

    def describe(self, logits: np.ndarray, **options: Any) -> list[dict[str, Any]]:
        """Returns `score`; raises a `UserError` if there are several numbers for each text."""
        if logits.ndim != 1:
            raise UserError(
                f"a network must give one score for each text; received {logits.shape[-1]} numbers; export the bundle "
                "again"
            )
        return [{"score": float(score)} for score in logits]
