"""What int8 weights cost a fine-tuned model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.examples import Examples

QUANTIZED = "dynamic_wi8"


def quantized_metrics(
    model_directory: Path, bundle: Path, dev: Examples, metrics: Sequence[str], *, length: int
) -> dict[str, float]:
    """Exports a model with int8 weights and scores the file.

    Args:
      model_directory: a fine-tuned model.
      bundle: the folder to make; an existing one is replaced.
      dev: labelled examples.
      metrics: names for `pocketbert.tasks.metrics.compute`.
      length: tokens of the exported network.
    """
    from pocketbert_export.predictors import open_predictor
    from pocketbert_export.scoring import score_texts

    export_quantized(model_directory, bundle, [length])
    return score_texts(open_predictor(bundle), dev, metrics)


def export_quantized(model_directory: Path, bundle: Path, lengths: Sequence[int]) -> None:
    """Exports a model with int8 weights; what they cost is asked elsewhere, so the gate lets every answer pass."""
    from pocketbert_export.checks import BOUNDS
    from pocketbert_export.exporter import export_bundle

    free: dict[str, Any] = dict.fromkeys(
        ("largest_difference", "rms_difference", "length_difference", "metric_drop_points"), 1e9
    )
    bounds = dataclasses.replace(BOUNDS[QUANTIZED], label_agreement=0.0, **free)
    export_bundle(model_directory, QUANTIZED, lengths, bundle, bounds=bounds, overwrite=True)
