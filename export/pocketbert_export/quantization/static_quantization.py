"""Static quantization: activations have fixed ranges from calibration texts, as NPUs require.

- `static_wi8_ai8`: dense layers and embedding look-ups compute in int8. Everything else stays float32: other int8
  operators are slower than float32 on CPUs, and cost accuracy.
- `static_wi8_ai8_full`: every operator in `static_operators.every_operator` computes in int8.
- `static_wi8_ai16`: like `static_wi8_ai8`, with int16 activations for dense layers with too large int8 errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.recipes import RECIPES, Recipe
from pocketbert_export.quantization.calibration import (
    FEWEST_TEXTS,
    METHODS,
    ActivationHistograms,
    CalibrationTexts,
    RangeMethod,
    Ranges,
    largest_per_channel,
    outputs_of,
    relative_error,
)
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.equalization import UNEQUAL_INPUTS, equalize, joined, lone_inputs, unequal
from pocketbert_export.quantization.quantize import LayerFormat, layers, quantize
from pocketbert_export.quantization.quantizers import QuantizedFile, QuantizerInputs
from pocketbert_export.quantization.static_operators import every_operator, integer_operators
from pocketbert_export.tflite.graph import (
    GraphEditor,
    drop_unused,
    operator_name,
    producer_positions,
    read_model,
    write_model,
)
from pocketbert_runtime.bundles.length_buckets import LengthBucket

# A dense layer gets int16 activations if int8 rounds its inputs or outputs by a larger part of their median channel.
_MOST_ROUNDING = 0.04


@dataclass(frozen=True, kw_only=True)
class CalibratedFile:
    """A quantized file and its calibration.

    Attributes:
      content: the file's content.
      method: method behind the ranges.
      dev_error: root mean square difference from the float file on the dev split, relative to its outputs.
    """

    content: bytes
    method: RangeMethod
    dev_error: float


def check_options(options: CalibrationOptions, recipe: Recipe, *, has_texts: bool) -> None:
    """Raises a `UserError` for too few calibration texts, a margin that is not positive, or an option without a use."""
    default, is_static = CalibrationOptions(), recipe.activations == "static"
    uses = {
        "calibration_examples": ("calibration texts", has_texts),
        "calibration_ranges": ("a static recipe", is_static),
        "equalize": ("a static recipe", is_static),
        "padding_margin": (argument("recipe", "static_wi8_ai8_full"), recipe.operators == "all"),
    }
    for name, (needed, is_used) in uses.items():
        if getattr(options, name) != getattr(default, name) and not is_used:
            option = argument(name, False) if name == "equalize" else argument(name)
            without = " without them" if name == "calibration_examples" else ""
            raise UserError(
                f"{option} needs {needed}; received {argument('recipe', recipe.name)}{without}; leave it out"
            )
    if not 0 < options.padding_margin < math.inf:
        raise UserError(
            f"{argument('padding_margin')} must be positive; received {options.padding_margin}; the default is 12"
        )
    if options.calibration_examples < FEWEST_TEXTS:
        raise UserError(
            f"{argument('calibration_examples')} must be at least {FEWEST_TEXTS}; received "
            f"{options.calibration_examples}; the default is 256"
        )


def static_file(content: bytes, recipe: Recipe, inputs: QuantizerInputs) -> QuantizedFile:
    """Quantizes for static recipes."""
    assert inputs.texts is not None
    calibrated = quantize_static(content, inputs.texts, inputs.options, recipe)
    return QuantizedFile(content=calibrated.content, method=calibrated.method)


def quantize_static(
    content: bytes,
    texts: CalibrationTexts,
    options: CalibrationOptions = CalibrationOptions(),  # noqa: B008
    recipe: Recipe = RECIPES["static_wi8_ai8"],  # noqa: B008
) -> CalibratedFile:
    """Calibrates and quantizes a float32 file with the same operators in every signature."""
    is_full = recipe.operators == "all"
    if options.equalize:
        # In the full recipe, the operators before dense layers compute in int8 themselves.
        dense, inputs = _dense(content), [] if is_full else lone_inputs(content)
        largest = joined(content, largest_per_channel(content, texts.measured, [*dense, *inputs]))
        factors = unequal({position: largest[position] for position in dense})
        factors |= unequal({position: largest[position] for position in inputs}, UNEQUAL_INPUTS)
        content = equalize(content, factors)
        log_info(f"calibration: equalized {len(factors)} of {len(largest)} activations")
    positions = every_operator(content) if is_full else list(layers(content))
    chosen = integer_operators(content, dict.fromkeys(positions, "static_wi8_ai8"))
    histograms = ActivationHistograms(content, texts.measured, chosen.measured)
    expected = outputs_of(content, texts.dev)
    methods = METHODS if options.calibration_ranges == "auto" else (options.calibration_ranges,)

    def attempt(floats: bytes, method: RangeMethod) -> CalibratedFile:
        formats, ranges = chosen.formats, histograms.ranges(method)
        if recipe.activation_bits == 16:
            formats, ranges = _with_int16(floats, formats, histograms, ranges)
        quantized = quantize(floats, formats, chosen.ranges(ranges, options.padding_margin))
        error = relative_error(expected, outputs_of(quantized, texts.dev))
        return CalibratedFile(content=quantized, method=method, dev_error=error)

    attempts = [attempt(content, method) for method in methods]
    for file in attempts:
        log_info(f"calibration: {file.method} ranges give a relative error of {file.dev_error:.3f} on the dev split")
    best = min(attempts, key=lambda file: file.dev_error)
    centred = _with_output_means(content, best.content, texts.measured)
    if centred is None:
        return best
    corrected = attempt(centred, best.method)
    log_info(f"calibration: with the means of the outputs corrected, it is {corrected.dev_error:.3f}")
    return min(best, corrected, key=lambda file: file.dev_error)


def _with_output_means(content: bytes, quantized: bytes, buckets: Sequence[LengthBucket]) -> bytes | None:
    """Adds the mean error in a quantized file's outputs to their biases in the float file; None without such biases.

    Rounding and clipping shift the outputs in one direction, which moves a classifier's decisions. Nagel et al. 2019
    (section 4.2) correct the mean empirically; here only in the last layers, because earlier layers need as many
    calibrations as there are layers.
    """
    model = read_model(content)
    editor = GraphEditor(model)
    expected, received = (_output_means(file, buckets) for file in (content, quantized))
    is_corrected = False
    for signature in model.signatureDefs:
        graph = model.subgraphs[int(signature.subgraphIndex)]
        producers = producer_positions(graph)
        for output in signature.outputs:
            name, index = output.name.decode(), int(output.tensorIndex)
            while index in producers and operator_name(model, graph.operators[producers[index]]) == "RESHAPE":
                index = int(graph.operators[producers[index]].inputs[0])
            operator = graph.operators[producers[index]] if index in producers else None
            if operator is None or operator_name(model, operator) != "FULLY_CONNECTED" or len(operator.inputs) < 3:
                continue
            bias = editor.values(graph, int(operator.inputs[2])) if operator.inputs[2] >= 0 else None
            if bias is None or name not in expected or expected[name].shape != bias.shape:
                continue
            shift = (expected[name] - received[name]).astype(np.float32)
            inputs = [int(source) for source in operator.inputs]
            inputs[2] = editor.constant(graph, bytes(graph.tensors[inputs[2]].name) + b"/mean", bias + shift)
            operator.inputs = inputs
            is_corrected = True
    drop_unused(model)
    return write_model(model) if is_corrected else None


def _output_means(content: bytes, buckets: Sequence[LengthBucket]) -> dict[str, np.ndarray]:
    """Mean of each output with channels over all texts and tokens: name → float64 `[channels]`."""
    rows: dict[str, list[np.ndarray]] = {}
    for outputs in outputs_of(content, buckets):
        for name, values in outputs.items():
            # A span's logits have one value for each token.
            if values.ndim > 1:
                rows.setdefault(name, []).append(values.reshape(-1, values.shape[-1]))
    return {name: np.concatenate(values).mean(axis=0, dtype=np.float64) for name, values in rows.items()}


def _dense(content: bytes) -> list[int]:
    return [position for position, name in layers(content).items() if name == "FULLY_CONNECTED"]


def _with_int16(
    content: bytes, formats: Mapping[int, LayerFormat], histograms: ActivationHistograms, ranges: Ranges
) -> tuple[dict[int, LayerFormat], Ranges]:
    """Gives dense layers with large int8 errors int16 activations, with ranges that no value exceeds."""
    errors, limits = histograms.rounding_errors(ranges), histograms.ranges("min_max")
    graph = read_model(content).subgraphs[0]
    producers = producer_positions(graph)
    dense = _dense(content)
    formats, ranges, count = dict(formats), dict(ranges), 0
    for position in dense:
        both = [position, producers[int(graph.operators[position].inputs[0])]]
        if max(errors.get(end, 0.0) for end in both) > _MOST_ROUNDING:
            formats[position], count = "static_wi8_ai16", count + 1
            ranges |= {end: limits[end] for end in both if end in limits}
    log_info(f"calibration: int16 activations for {count} of {len(dense)} dense layers")
    return formats, ranges
