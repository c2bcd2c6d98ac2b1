"""Options of calibration; this module does not import TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

# 1,000 positions of padding then add at most 0.6 % to the sum of a softmax whose logits are all the lowest.
PADDING_MARGIN = 12.0


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """Calibration texts, and how recipes use them.

    Attributes:
      calibration_examples: number of calibration texts to draw.
      calibration_ranges: method that turns measured values into ranges; `auto` takes the one with the smallest error on
        a dev split of the texts.
      equalize: move the scales of unequal channels out of int8 activations.
      padding_margin: with --recipe=static_wi8_ai8_full, how far the attention logits of padding end below all others; a
        larger margin makes the steps of the other logits coarser.
      max_points_lost: with --recipe=mixed, largest loss of the task's metric in points, at the upper end of its 95 %
        interval on the calibration texts; they need labels. With 256 texts, one wrong answer is 0.4 points, so pass
        more --calibration-examples.
      max_mb: with --recipe=mixed, largest size of the file in millions of bytes.
    """

    GROUP: ClassVar = "Calibration"
    COMMON: ClassVar = ()

    calibration_examples: int = 256
    calibration_ranges: Literal["auto", "min_max", "percentile", "mse"] = "auto"
    equalize: bool = True
    padding_margin: float = PADDING_MARGIN
    max_points_lost: float | None = None
    max_mb: float | None = None
