"""Convert a model to a SavedModel and to a `.tflite` file."""

from __future__ import annotations

import os
import pkgutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
from tensorflow.lite.python import lite
from tensorflow.lite.python.conversion_metadata_schema_py_generated import ModelType
from tensorflow.python.saved_model.loader_impl import parse_saved_model

from pocketbert import output_folders as outputs
from pocketbert.model import Model
from pocketbert.processes import stderr_on_failure
from pocketbert.recipes import Recipe
from pocketbert_export.quantization.calibration import CalibrationTexts, root_mean_squares
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.per_tensor import per_channel_to_per_tensor
from pocketbert_export.quantization.quantizers import QuantizedFile, QuantizerInputs
from pocketbert_export.quantization.smoothing import dense_layers, smooth
from pocketbert_export.recipes import configure, get_recipe
from pocketbert_export.tflite.graph import require_equal_graphs, share_quantization, split_evenly
from pocketbert_export.tflite.signatures import DEFAULT_SIGNATURE, check_lengths, concrete_functions
from pocketbert_runtime.bundles.description import signature_name
from pocketbert_runtime.bundles.length_buckets import LengthBucket


def write_saved_model(
    model: Model,
    path: str | os.PathLike[str],
    lengths: Sequence[int],
    *,
    overwrite: bool = False,
    group: outputs.Together | None = None,
) -> None:
    """Writes a SavedModel with one signature per length, completely or not at all.

    `serving_default` is the longest length's signature, for tools such as `tflite_convert`.

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
    """Converts a model to a `.tflite` file with one signature per length and shared weights; returns its content.

    Args:
      model: the model, optimized or not.
      lengths: sequence lengths in tokens.
      recipe: number formats.
      channelwise: allow per-channel int8 layers, for runtimes with version 12 of FULLY_CONNECTED; if False,
        `per_tensor` moves the scales out of the layer.
      texts: a few texts in these lengths for the recipe's quantizer, or to smooth the converter's files (`smoothing`);
        none to leave it out.
    Raises:
      UserError: the lengths do not suit the model.
    """
    if recipe.quantizer:
        content = _quantized(recipe, QuantizerInputs(model=model, lengths=lengths, buckets=texts)).content
    elif texts:
        content, floats = _converted(model, lengths, recipe, get_recipe("float32"))
        require_equal_graphs(floats)
        floats = share_quantization(floats)
        content = smooth(content, floats, root_mean_squares(floats, texts, dense_layers(floats)))
    else:
        (content,) = _converted(model, lengths, recipe)
    return share_quantization(content if channelwise else per_channel_to_per_tensor(content))


def to_calibrated_tflite(
    model: Model, lengths: Sequence[int], recipe: Recipe, texts: CalibrationTexts, options: CalibrationOptions
) -> QuantizedFile:
    """Converts a model with calibration texts, as `to_tflite` does without; returns the file, with shared scales.

    Args:
      model: the model, optimized or not.
      lengths: sequence lengths in tokens.
      recipe: a recipe that calibrates.
      texts: calibration texts, in these lengths.
      options: method for the ranges, equalization, and limits on mixed files.
    Raises:
      UserError: the lengths do not suit the model, or the limits cannot be met.
    """
    buckets = [*texts.measured, *texts.dev]
    inputs = QuantizerInputs(model=model, lengths=lengths, buckets=buckets, texts=texts, options=options)
    quantized = _quantized(recipe, inputs)
    return replace(quantized, content=share_quantization(quantized.content))


def _converted(model: Model, lengths: Sequence[int], *recipes: Recipe) -> list[bytes]:
    """The converter's file for each recipe, with one signature per length."""
    lengths = check_lengths(lengths, model.config)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved_model")
        write_saved_model(model, path, lengths)
        signatures = [signature_name(length) for length in lengths]
        # The converter writes C++ warnings about options that it ignores.
        with stderr_on_failure():
            return [split_evenly(_convert_saved_model(path, signatures, recipe)) for recipe in recipes]


def _convert_saved_model(path: Path, signatures: Sequence[str], recipe: Recipe) -> bytes:
    """Does the same as `tf.lite.TFLiteConverter.from_saved_model` and `convert`, with less work.

    They restore the variables and import the graph into Python three times, for records that no conversion reads.
    """
    lite.TFLiteConverterBase._set_original_model_type(ModelType.TF_SAVED_MODEL)
    converter = lite.TFLiteSavedModelConverterV2(str(path), {tf.saved_model.SERVING}, list(signatures))
    configure(converter, recipe)
    graph = parse_saved_model(str(path)).meta_graphs[0].graph_def
    content: bytes = converter._convert_and_export_metrics(lambda self: self._convert_from_saved_model(graph))
    return content


def _quantized(recipe: Recipe, inputs: QuantizerInputs) -> QuantizedFile:
    """The file for a recipe with a quantizer."""
    (content,) = _converted(inputs.model, inputs.lengths, get_recipe("float32"))
    require_equal_graphs(content)
    quantized: QuantizedFile = pkgutil.resolve_name(recipe.quantizer)(share_quantization(content), recipe, inputs)
    return quantized


class _Weights(tf.Module):
    """The variables alone: saving the Keras object would trace every layer again."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.weights = list(model.variables)
