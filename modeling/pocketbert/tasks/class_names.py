"""Class names in answers and scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pocketbert.configs import TaskConfig
from pocketbert.data.readers.glue import GLUE


def positive_class(config: TaskConfig) -> int:
    """The positive class for F1: class 1 in the GLUE task with this name and these labels, else the second class."""
    glue = GLUE.get(config.name)
    if glue is None or not glue.task.labels or set(glue.task.labels) != set(config.labels):
        return 1
    return config.labels.index(glue.task.labels[1])


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
