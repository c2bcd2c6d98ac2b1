"""Create accuracy records for result files."""

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
    """Creates an `Accuracy` with the hash of the scored file.

    Args:
      label: label of the file's measurements.
      model: name of the network.
      recipe: number formats.
      task: name of the task.
      split: description of the examples.
      metric: name of the metric.
      value: the score; 1 is perfect.
      examples: number of scored examples.
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
