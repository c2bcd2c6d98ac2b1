"""Export fine-tuned models with int8 weights for studies."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

QUANTIZED = "dynamic_wi8"


def export_quantized(model_directory: Path, bundle: Path, lengths: Sequence[int]) -> None:
    """Exports a model with int8 weights. The study measures the loss of accuracy, so the gate accepts any outputs."""
    from pocketbert_export.bounds import BOUNDS
    from pocketbert_export.exporter import export

    free: dict[str, Any] = dict.fromkeys(
        ("largest_difference", "rms_difference", "length_difference", "metric_drop_points"), 1e9
    )
    bounds = dataclasses.replace(BOUNDS[QUANTIZED], label_agreement=0.0, **free)
    export(model_directory, bundle, recipe=QUANTIZED, lengths=lengths, bounds=bounds, overwrite=True)
