"""Inputs and results of the recipes' quantizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketbert.model import Model
from pocketbert_export.quantization.calibration import CalibrationTexts
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_runtime.bundles.length_buckets import LengthBucket

if TYPE_CHECKING:
    from pocketbert_export.quantization.mixed_precision import FrontPoint


@dataclass(frozen=True, kw_only=True)
class QuantizerInputs:
    """Arguments to a quantizer, `quantizer(content, recipe, inputs)`, beside the float32 file and the recipe.

    Attributes:
      model: the converted model.
      lengths: sequence lengths in tokens.
      buckets: texts by length: the calibration texts or a few built-in ones; empty for none.
      texts: calibration texts; None for an export without.
      options: calibration options.
    """

    model: Model
    lengths: Sequence[int]
    buckets: Sequence[LengthBucket] = ()
    texts: CalibrationTexts | None = None
    options: CalibrationOptions = CalibrationOptions()


@dataclass(frozen=True, kw_only=True)
class QuantizedFile:
    """A quantizer's file.

    Attributes:
      content: the file's content.
      method: method that used the calibration texts.
      front: for mixed files, the measured files behind the choice, from the largest to the smallest.
    """

    content: bytes
    method: str
    front: Sequence[FrontPoint] = ()
