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
    from pocketbert.tasks.metrics import compute
    from pocketbert_export.checks import BOUNDS
    from pocketbert_export.exporter import export_bundle
    from pocketbert_export.predictors import open_predictor, predictions_of

    # What quantization costs is what is asked here, so the gate lets every answer pass.
    free: dict[str, Any] = dict.fromkeys(
        ("largest_difference", "rms_difference", "length_difference", "metric_drop_points"), 1e9
    )
    bounds = dataclasses.replace(BOUNDS[QUANTIZED], label_agreement=0.0, **free)
    export_bundle(model_directory, QUANTIZED, [length], bundle, bounds=bounds, overwrite=True)
    predictor = open_predictor(bundle)
    assert dev.labels is not None
    return compute(metrics, dev.labels, predictions_of(predictor.task, predictor.logits(dev.texts, dev.pairs)))
