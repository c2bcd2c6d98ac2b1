"""Scores in the form of the results, so that accuracy and latency meet in one file."""

from __future__ import annotations

from pathlib import Path

from pocketbert import files
from pocketbert_bench.results import Accuracy


def record(
    *,
    label: str,
    model: str,
    recipe: str,
    task: str,
    split: str,
    metric: str,
    value: float,
    examples: int,
    model_file: Path | None = None,
) -> Accuracy:
    """An `Accuracy`, with the scored file's hash.

    Args:
      label: as in the measurements it belongs to.
      model: the network's name.
      recipe: number formats.
      task: the task's name.
      split: which examples, in words.
      metric: the score's name.
      value: the score, 1 being perfect.
      examples: how many were scored.
      model_file: the `.tflite` file; None for a model directory.
    """
    return Accuracy(
        label=label,
        model=model,
        recipe=recipe,
        model_sha256=files.sha256(model_file) if model_file else None,
        task=task,
        split=split,
        metric=metric,
        value=float(value),
        examples=examples,
    )
