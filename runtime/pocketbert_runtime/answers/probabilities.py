"""Label probabilities, and their names in answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.decision_config import DecisionConfig
from pocketbert_runtime.errors import UserError


def probabilities_of(logits: np.ndarray) -> np.ndarray:
    """Softmax over classes, float64 [N, classes]."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def check_labels(labels: Sequence[str], logits: np.ndarray) -> None:
    """Raises a `UserError` if logits [N, labels] have other labels; a hand-edited `bundle.json` may list others."""
    if logits.shape[-1] != len(labels):
        raise UserError(
            f"a network must give a logit for each label, of which there are {len(labels)}; received "
            f"{logits.shape[-1]} logits; export the bundle again"
        )


def sigmoid_of(logits: np.ndarray) -> np.ndarray:
    """Independent label probabilities, float64, in the shape of `logits`."""
    # A logit below -709 has the probability 0.
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-logits.astype(np.float64)))


def threshold_logits(decisions: DecisionConfig | None, *, of_classes: bool) -> np.ndarray | None:
    """Returns values to subtract from the labels' logits, float64 [labels]; None without thresholds.

    The class with the largest difference is then predicted; with several labels, each label with at least 0.
    """
    if decisions is None or decisions.thresholds is None:
        return None
    values = np.asarray(decisions.thresholds, np.float64)
    return np.log(values) if of_classes else np.log(values) - np.log1p(-values)


def described_probabilities(
    labels: Sequence[str], values: Iterable[float], top_k: int | None, *, soft_labels: bool = False
) -> dict[str, Any]:
    """All labels with their `probabilities`, or the best as `top`; ties go to the earlier label.

    Probabilities have six decimals; soft labels have all digits.
    """
    by_label = list(zip(labels, map(float, values), strict=True))
    if soft_labels:
        return {"probabilities": dict(by_label)}
    if top_k is None:
        return {"probabilities": {label: round(value, 6) for label, value in by_label}}
    best = sorted(by_label, key=lambda pair: -pair[1])[:top_k]
    return {"top": [{"label": label, "probability": round(value, 6)} for label, value in best]}
