"""Export fine-tuned models for studies that measure what a recipe loses, so the gate accepts any outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketbert.recipes import Bounds

QUANTIZED = "dynamic_wi8"


def any_outputs() -> Bounds:
    """Bounds of the gate that any outputs meet."""
    from pocketbert.recipes import Bounds

    return Bounds(
        largest_difference=1e9,
        rms_difference=1e9,
        label_agreement=0.0,
        metric_drop_points=1e9,
        metric_drop_deviations=1e9,
        length_difference=1e9,
        own_difference=1e9,
        mean_cosine=-1.0,
    )
