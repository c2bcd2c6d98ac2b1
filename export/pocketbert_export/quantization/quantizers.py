"""What the quantizers of recipes read and return."""

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
    """Arguments of a quantizer, `quantizer(content, recipe, inputs)`, beside the float32 file and the recipe.

    Attributes:
      model: the model that was converted.
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
    """A file of a quantizer.

    Attributes:
      content: content of the file.
      method: method that used the calibration texts.
      front: of mixed files: the measured files that this one was chosen from, from the largest to the smallest.
    """

    content: bytes
    method: str
    front: Sequence[FrontPoint] = ()
