"""Static quantization: activations have fixed ranges from calibration texts, as NPUs require.

- `static_wi8_ai8`: dense layers and the lookup of embeddings compute in int8. Everything else stays float32: other int8
  operators are slower than float32 on CPUs, and cost accuracy.
- `static_wi8_ai8_full`: every operator computes in int8, except those of `static_operators.every_operator`.
- `static_wi8_ai16`: like `static_wi8_ai8`, with int16 activations for dense layers that lose accuracy in int8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_export.calibration import (
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
from pocketbert_export.calibration_options import CalibrationOptions
from pocketbert_export.equalization import UNEQUAL_INPUTS, equalize, lone_inputs, unequal
from pocketbert_export.quantize import LayerFormat, layers, quantize
from pocketbert_export.recipes import Recipe
from pocketbert_export.static_operators import every_operator, integer_operators
from pocketbert_export.tflite_graph import producer_positions, read_model

StaticRecipe = Literal["static_wi8_ai8", "static_wi8_ai8_full", "static_wi8_ai16"]
# A dense layer gets int16 activations if int8 rounds its inputs or outputs by a larger share of their median channel.
_MOST_ROUNDING = 0.04


@dataclass(frozen=True, kw_only=True)
class CalibratedFile:
    """A quantized file and its calibration.

    Attributes:
      content: content of the file.
      method: method of the ranges.
      dev_error: root mean square difference from the float file on the dev split, relative to its outputs.
    """

    content: bytes
    method: RangeMethod
    dev_error: float


def check_options(options: CalibrationOptions, recipe: Recipe, *, has_texts: bool) -> None:
    """Checks the options.

    Args:
      options: those of an export.
      recipe: its recipe.
      has_texts: whether there are calibration texts.
    Raises:
      UserError: too few calibration texts, a margin that is not positive, or an option without a use.
    """
    default, is_static = CalibrationOptions(), recipe.activations == "static"
    uses = {
        "calibration_examples": ("calibration texts", has_texts),
        "calibration_ranges": ("a static recipe", is_static),
        "equalize": ("a static recipe", is_static),
        "padding_margin": (argument("recipe", "static_wi8_ai8_full"), recipe.name == "static_wi8_ai8_full"),
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


def quantize_static(
    content: bytes,
    texts: CalibrationTexts,
    options: CalibrationOptions = CalibrationOptions(),  # noqa: B008
    recipe: StaticRecipe = "static_wi8_ai8",
) -> CalibratedFile:
    """Calibrates and quantizes a float file.

    Args:
      content: content of a float32 `.tflite` file with the same operators in every signature.
      texts: calibration texts.
      options: method of the ranges, and equalization.
      recipe: which operators compute in integers.
    Returns:
      The quantized file.
    """
    is_full = recipe == "static_wi8_ai8_full"
    if options.equalize:
        # In the full recipe, the operators that write inputs of dense layers compute in int8 themselves.
        dense, inputs = _dense(content), [] if is_full else lone_inputs(content)
        largest = largest_per_channel(content, texts.measured, [*dense, *inputs])
        found = unequal({each: largest[each] for each in dense})
        found |= unequal({each: largest[each] for each in inputs}, UNEQUAL_INPUTS)
        content = equalize(content, found)
        log_info(f"calibration: equalized {len(found)} of {len(largest)} activations")
    positions = every_operator(content) if is_full else list(layers(content))
    chosen = integer_operators(content, dict.fromkeys(positions, "static_wi8_ai8"))
    histograms = ActivationHistograms(content, texts.measured, chosen.measured)
    expected = outputs_of(content, texts.dev)
    methods = METHODS if options.calibration_ranges == "auto" else (options.calibration_ranges,)
    tried = []
    for method in methods:
        formats, ranges = chosen.formats, histograms.ranges(method)
        if recipe == "static_wi8_ai16":
            formats, ranges = _with_int16(content, formats, histograms, ranges)
        made = quantize(content, formats, chosen.ranges(ranges, options.padding_margin))
        error = relative_error(expected, outputs_of(made, texts.dev))
        log_info(f"calibration: {method} ranges give a relative error of {error:.3f} on the dev split")
        tried.append(CalibratedFile(content=made, method=method, dev_error=error))
    return min(tried, key=lambda each: each.dev_error)


def _dense(content: bytes) -> list[int]:
    return [position for position, name in layers(content).items() if name == "FULLY_CONNECTED"]


def _with_int16(
    content: bytes, formats: Mapping[int, LayerFormat], histograms: ActivationHistograms, ranges: Ranges
) -> tuple[dict[int, LayerFormat], Ranges]:
    """Gives dense layers that lose accuracy in int8 int16 activations, with ranges that no value exceeds."""
    errors, limits = histograms.rounding_errors(ranges), histograms.ranges("min_max")
    graph = read_model(content).subgraphs[0]
    producers = producer_positions(graph)
    dense = _dense(content)
    formats, ranges, count = dict(formats), dict(ranges), 0
    for position in dense:
        both = [position, producers[int(graph.operators[position].inputs[0])]]
        if max(errors.get(each, 0.0) for each in both) > _MOST_ROUNDING:
            formats[position], count = "static_wi8_ai16", count + 1
            ranges |= {each: limits[each] for each in both if each in limits}
    log_info(f"calibration: int16 activations for {count} of {len(dense)} dense layers")
    return formats, ranges
