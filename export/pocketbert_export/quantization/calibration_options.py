"""Calibration options; this module does not import TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

# 1,000 padding positions then add at most 0.6 % to a softmax sum, even if all logits are the lowest.
PADDING_MARGIN = 12.0


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """Calibration texts, and how recipes use them.

    Attributes:
      calibration_examples: number of calibration texts to draw.
      calibration_ranges: method to turn measured values into ranges; `auto` takes the one with the smallest error on a
        dev split from the texts.
      equalize: move unequal channels' scales out of int8 activations.
      padding_margin: with --recipe=static_wi8_ai8_full, how far padding's attention logits end below all others; a
        larger margin makes the other logits' steps coarser.
      max_points_lost: with --recipe=mixed, largest loss in the task's metric in points, at the upper end of its 95 %
        interval on the calibration texts; they need labels. With 256 texts, one wrong answer is 0.4 points, so pass
        more --calibration-examples.
      max_mb: with --recipe=mixed, largest file size in millions of bytes.
    """

    GROUP: ClassVar = "Calibration"
    COMMON: ClassVar = ()

    calibration_examples: int = 256
    calibration_ranges: Literal["auto", "min_max", "percentile", "mse"] = "auto"
    equalize: bool = True
    padding_margin: float = PADDING_MARGIN
    max_points_lost: float | None = None
    max_mb: float | None = None
