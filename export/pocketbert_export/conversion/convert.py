"""Convert a model to a SavedModel and to a `.tflite` file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import tensorflow as tf

from pocketbert import output_folders as outputs
from pocketbert.model import Model
from pocketbert.processes import stderr_on_failure
from pocketbert_export.quantization.calibration import CalibrationTexts, root_mean_squares
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.float16_range import fit_float16, round_weights
from pocketbert_export.quantization.int4_quantization import quantize_int4
from pocketbert_export.quantization.mixed_precision import FrontPoint, quantize_mixed
from pocketbert_export.quantization.per_tensor import per_channel_to_per_tensor
from pocketbert_export.quantization.scored_texts import ScoredTexts
from pocketbert_export.quantization.smoothing import dense_layers, smooth
from pocketbert_export.quantization.static_quantization import StaticRecipe, quantize_static
from pocketbert_export.recipes import Recipe, configure, get_recipe
from pocketbert_export.tflite.graph import share_quantization, split_evenly
from pocketbert_export.tflite.length_buckets import LengthBucket
from pocketbert_export.tflite.signatures import DEFAULT_SIGNATURE, check_lengths, concrete_functions, signature_name


def write_saved_model(
    model: Model,
    path: str | os.PathLike[str],
    lengths: Sequence[int],
    *,
    overwrite: bool = False,
    group: outputs.Together | None = None,
) -> None:
    """Writes a SavedModel with one signature per length, completely or not at all.

    `serving_default` is the signature of the longest length, for tools such as `tflite_convert`.

    Args:
      model: the model, optimized or not.
      path: output folder.
      lengths: sequence lengths in tokens.
      overwrite: replace an existing folder.
      group: see `pocketbert.output_folders.new_directory`.
    Raises:
      UserError: `path` exists, or the lengths do not suit the model.
    """
    lengths = check_lengths(lengths, model.config)
    with outputs.new_directory(path, outputs.SAVED_MODEL_KIND, overwrite=overwrite, group=group) as folder:
        signatures = concrete_functions(model, lengths)
        signatures[DEFAULT_SIGNATURE] = signatures[signature_name(lengths[-1])]
        tf.saved_model.save(_Weights(model), str(folder), signatures=signatures)


def to_tflite(
    model: Model,
    lengths: Sequence[int],
    recipe: Recipe,
    *,
    channelwise: bool = True,
    texts: Sequence[LengthBucket] = (),
) -> bytes:
    """Converts a model to a `.tflite` file with one signature per length and shared weights.

    Args:
      model: the model, optimized or not.
      lengths: sequence lengths in tokens.
      recipe: number formats.
      channelwise: whether int8 layers may be quantized per channel, which requires a runtime with version 12 of
        FULLY_CONNECTED; if False, `per_tensor` moves the scales out of the layer.
      texts: a few texts in these lengths. They smooth dynamic int8 files (`smoothing`), and fit the range of float16
        files (`float16_range`); none to leave it out.
    Returns:
      Content of the file.
    Raises:
      UserError: the lengths do not suit the model.
    """
    lengths = check_lengths(lengths, model.config)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved_model")
        write_saved_model(model, path, lengths)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            str(path), signature_keys=[signature_name(length) for length in lengths]
        )
        configure(converter, recipe)
        # The converter writes C++ warnings about options that it ignores.
        with stderr_on_failure():
            content = split_evenly(converter.convert())
    if recipe.weights == "int4":
        content = quantize_int4(content)
    if recipe.weights == "float16":
        content = round_weights(fit_float16(content, texts) if texts else content)
    elif texts:
        floats = to_tflite(model, lengths, get_recipe("float32"))
        content = smooth(content, floats, root_mean_squares(floats, texts, dense_layers(floats)))
    return share_quantization(content if channelwise else per_channel_to_per_tensor(content))


@dataclass(frozen=True, kw_only=True)
class CalibratedConversion:
    """A file that calibration texts determined.

    Attributes:
      content: content of the file.
      method: method that used the texts.
      front: of mixed files: the measured files that this one was chosen from.
    """

    content: bytes
    method: str
    front: Sequence[FrontPoint] = ()


def to_calibrated_tflite(
    model: Model, lengths: Sequence[int], recipe: Recipe, texts: CalibrationTexts, options: CalibrationOptions
) -> CalibratedConversion:
    """Converts a model with calibration texts, as `to_tflite` does without them.

    Args:
      model: the model, optimized or not.
      lengths: sequence lengths in tokens.
      recipe: a recipe that calibrates.
      texts: calibration texts, in these lengths.
      options: method of the ranges, equalization, and limits of mixed files.
    Raises:
      UserError: the lengths do not suit the model, or the limits cannot be met.
    """
    if recipe.weights == "float16":
        content = to_tflite(model, lengths, recipe, texts=[*texts.measured, *texts.dev])
        return CalibratedConversion(content=content, method="channel scales")
    content = to_tflite(model, lengths, get_recipe("float32"))
    if recipe.name == "mixed":
        assert model.tokenizer is not None
        scored = ScoredTexts(content, model.task, texts.scored, model.tokenizer, lengths)
        mixed = quantize_mixed(content, texts, options, scored)
        return CalibratedConversion(content=mixed.content, method="sensitivity", front=mixed.front)
    if recipe.weights == "int4":
        return CalibratedConversion(content=share_quantization(quantize_int4(content, texts)), method="gptq")
    made = quantize_static(content, texts, options, cast(StaticRecipe, recipe.name))
    return CalibratedConversion(content=share_quantization(made.content), method=made.method)


class _Weights(tf.Module):
    """The variables alone: saving the Keras object would trace every layer again."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.weights = list(model.variables)
