"""The recipe table: number formats of an exported file, named in one grammar, with the gate's bounds.

A name describes weights and activations:

- `float32` and `float16` are the type of all weights.
- `dynamic_wi8`: int8 weights (`wi8`); activations are quantized at run time (`dynamic`). Dense layers then compute in
  int8, and everything else stays float32.
- `dynamic_wi4`: int4 weights (`wi4`) with a float16 scale for each block of 32 or 64.
- `static_wi8_ai8`: calibration texts fix the ranges (`static`) of int8 inputs and outputs (`ai8`) around dense layers.
- `static_wi8_ai8_full`: the same for every operator that keeps its accuracy.
- `static_wi8_ai16`: int16 activations (`ai16`) where int8 would lose accuracy.
- `mixed`: int4, int8 or float32 weights for each layer.

`dynamic_wi8` uses TensorFlow's converter. ai-edge-quantizer's file is neither faster nor smaller (it is larger until
calibration makes its GATHER static int8). `dynamic_wi4` and static recipes use ai-edge-quantizer: the converter has no
int4 weights, and in static int8 it quantizes every operator.

u is a number format's relative step, r its root mean square rounding error.

- `float32`: u = 2^-24. A sum over 1,000 products errs by about sqrt(1000)·u, so a layer errs by at most 2e-6, and 24
  layers by less than 1e-4 if all errors add up.
- `float16`: each weight is rounded once, by r = 2^-11/sqrt(3) = 2.8e-4. A dense layer's output then errs by r, and 100
  layers in sequence by sqrt(100)·r = 3e-3. The largest of thousands of outputs is about 4 times the root mean square:
  1e-2.
- `dynamic_wi8`: a row of normally distributed weights with a maximum at 4 deviations has steps of 4/127,
  r = 4/(127·sqrt(12)) = 0.9 %; activations with a maximum at 8 deviations 1.8 %. Together this is 2 % per dense layer.
  Residual connections halve the error for the layers above; 36 dense layers (six blocks) leave 6 %. The bound is 15 %
  for the root mean square, and four times as much for the largest output (`pocketbert_export.checks.outputs`).
- `dynamic_wi4`: the largest of 32 normally distributed weights is 2.1 deviations on average, so steps are 2.1/7,
  r = 2.1/(7·sqrt(12)) = 8.6 %; with the activations 8.8 % per dense layer, 4.4 times `dynamic_wi8`. Outputs sum many
  rounded weights, and the largest, most important weights are rounded relative to themselves. Six blocks leave 26 % by
  the estimate for `dynamic_wi8`; the bound is 35 %. The share of changed labels grows with the error: 7 % instead of
  3 %. The metric may drop as for `dynamic_wi8`.
- `static_wi8_ai8`: one range serves all texts, and dense layers also round their outputs. A range of 12 deviations has
  steps of 12/255, r = 12/(255·sqrt(12)) = 1.4 %; three such roundings and the weights' make 2.6 %, 1.3 times
  `dynamic_wi8`, and so are the bounds.
- `static_wi8_ai8_full`: a block has six dense layers and up to twelve other operators, which round by 1.4 % each:
  (6·2.6² + 12·1.4²)^0.5 = 8 %, 1.3 times the 6.4 % for `static_wi8_ai8`. Probabilities have steps of 1/256, coarser for
  long texts. The bounds are 1.5 times those for `static_wi8_ai8`.
- `static_wi8_ai16`: layers with int16 activations round their weights only. The others may be as coarse as in
  `static_wi8_ai8`, so the bounds are the same.
- `mixed`: no layer is coarser than in `dynamic_wi4`, so the bounds are the same.

Embeddings are compared by angle: with a relative error r, independent of the vector, the cosine is 1 - r^2/2. `float32`
leaves the cosine's rounding; `float16` 5e-6. `dynamic_wi8` may have r = 4.5 %, three quarters of the estimate for six
blocks, because a mean over tokens averages their errors; `static_wi8_ai8` has 1.3 times the error and 1.7 times the
angle's share, and `static_wi8_ai8_full` 2 times the error; `dynamic_wi4` has r = 35 %.

The table is below the exporter, because training rounds like a recipe. This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

from pocketbert.configs import BlockKind

WeightType = Literal["float32", "float16", "int8", "int4"]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds on the relative differences between a bundle and the float model; see the module docstring.

    Attributes:
      largest_difference: largest difference in one logit.
      rms_difference: root mean square difference over all logits.
      label_agreement: smallest share of examples with the reference's label; near ties count as agreeing.
      metric_drop_points: largest drop in the task's metric in points (1/100), unless chance explains it.
      metric_drop_deviations: correct predictions that may be lost, in standard deviations of chance; always at least
        one.
      length_difference: largest difference between two lengths of the same bundle.
      own_difference: largest difference from the file's golden outputs at export, relative to the largest output.
        Another machine's kernels sum in another order, so floats round differently. With activations quantized at run
        time, this can move a value across a rounding boundary in every layer: one step of 1/255 of a tensor's range.
      mean_cosine: least mean cosine between the bundle's and the float model's embeddings.
      span_factor: start and end logits may differ by `largest_difference` times this factor.
    """

    largest_difference: float
    rms_difference: float
    label_agreement: float
    metric_drop_points: float
    metric_drop_deviations: float
    length_difference: float
    own_difference: float
    mean_cosine: float
    span_factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Number formats of an exported file.

    Attributes:
      name: name on the command line.
      weights: type of the weights in dense layers and the embedding; the largest one if layers differ.
      activations: `float`; `dynamic`: quantized to int8 before each dense layer at run time; or `static`: quantized to
        int8 with fixed ranges from calibration.
      summary: expected size and speed, for `--help` and the documentation.
      bounds: differences that the gate allows.
      wider: the next recipe with less rounding.
      quantizer: `module:function` that makes the file from a float32 file, called with `QuantizerInputs`; empty for
        TensorFlow's converter.
      rounding: `module:function` that makes the `FakeQuantization` for `--qat`; empty for none.
      calibration: whether export needs calibration texts, uses them if it has some, or has no use for them.
      operators: for static recipes: whether dense layers compute in integers, or all operators.
      activation_bits: for static recipes: bits per activation where int8 would lose accuracy.
      chooses_formats: whether layers differ, within a limit on size or loss.
      unsupported: runtime → the operator that it lacks.
      blocks: kinds of blocks (`EncoderConfig.block`) that it holds for.
    """

    name: str
    weights: WeightType
    activations: Literal["float", "dynamic", "static"]
    summary: str
    bounds: Bounds
    wider: str = ""
    quantizer: str = ""
    rounding: str = ""
    calibration: Literal["none", "optional", "required"] = "none"
    operators: Literal["dense", "all"] = "dense"
    activation_bits: Literal[8, 16] = 8
    chooses_formats: bool = False
    unsupported: Mapping[str, str] = field(default_factory=dict)
    blocks: tuple[BlockKind, ...] = get_args(BlockKind)


_EXACT = Bounds(
    largest_difference=1e-4,
    rms_difference=2.5e-5,
    label_agreement=1.0,
    metric_drop_points=0.0,
    metric_drop_deviations=0.0,
    length_difference=1e-4,
    own_difference=1e-3,
    mean_cosine=0.999_999,
)
_INT8 = Bounds(
    largest_difference=0.6,
    rms_difference=0.15,
    label_agreement=0.97,
    metric_drop_points=0.5,
    metric_drop_deviations=2.0,
    length_difference=0.05,
    own_difference=0.1,
    mean_cosine=0.999,
    span_factor=2.0,
)
_STATIC = replace(_INT8, largest_difference=0.8, rms_difference=0.2, label_agreement=0.96, mean_cosine=0.998)
_INT4 = replace(_INT8, largest_difference=1.4, rms_difference=0.35, label_agreement=0.93, mean_cosine=0.94)
# Equalization and the operators' ranges know these blocks. DeBERTa's logits, for example, are sums of products with
# different ranges.
_STATIC_BLOCKS: tuple[BlockKind, ...] = ("plain", "bottleneck")
_INT4_BLOCKS = {"tflite-2.16": "FULLY_CONNECTED with int4 weights in blocks (version 12)"}
_QUANTIZERS = "pocketbert_export.quantization"
_ROUNDINGS = "pocketbert.layers.fake_quantization"

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="float32", weights="float32", activations="float", summary="the model's own numbers", bounds=_EXACT
        ),
        Recipe(
            name="float16",
            weights="float16",
            activations="float",
            summary="half the size; float32 arithmetic, as fast as float32",
            bounds=replace(
                _EXACT,
                largest_difference=1e-2,
                rms_difference=3e-3,
                label_agreement=0.995,
                metric_drop_points=0.1,
                mean_cosine=0.999_99,
            ),
            wider="float32",
            quantizer=f"{_QUANTIZERS}.float16_range:quantize_float16",
            calibration="optional",
        ),
        Recipe(
            name="dynamic_wi8",
            weights="int8",
            activations="dynamic",
            summary="a quarter of the size, about a third of the time",
            bounds=_INT8,
            wider="float16",
            rounding=f"{_ROUNDINGS}:DynamicInt8",
        ),
        Recipe(
            name="dynamic_wi4",
            weights="int4",
            activations="dynamic",
            summary="a seventh of the size, slightly slower than dynamic_wi8",
            bounds=_INT4,
            wider="dynamic_wi8",
            quantizer=f"{_QUANTIZERS}.int4_quantization:int4_file",
            rounding=f"{_ROUNDINGS}:DynamicInt4",
            calibration="optional",
            unsupported=_INT4_BLOCKS,
        ),
        Recipe(
            name="static_wi8_ai8",
            weights="int8",
            activations="static",
            summary="as small and fast as dynamic_wi8; fixed ranges, for processors without dynamic quantization",
            bounds=_STATIC,
            wider="static_wi8_ai16",
            quantizer=f"{_QUANTIZERS}.static_quantization:static_file",
            rounding=f"{_ROUNDINGS}:StaticInt8",
            calibration="required",
            blocks=_STATIC_BLOCKS,
        ),
        Recipe(
            name="static_wi8_ai8_full",
            weights="int8",
            activations="static",
            summary="every operator in int8, except norms and sums with LayerNorm; for NPUs",
            bounds=replace(
                _STATIC,
                largest_difference=1.2,
                rms_difference=0.3,
                label_agreement=0.94,
                length_difference=0.075,
                own_difference=0.15,
                mean_cosine=0.996,
            ),
            wider="static_wi8_ai8",
            quantizer=f"{_QUANTIZERS}.static_quantization:static_file",
            rounding=f"{_ROUNDINGS}:FullInt8",
            calibration="required",
            operators="all",
            blocks=_STATIC_BLOCKS,
        ),
        Recipe(
            name="static_wi8_ai16",
            weights="int8",
            activations="static",
            summary="int16 activations where int8 loses accuracy; for NPUs, and very slow on CPUs",
            bounds=_STATIC,
            wider="dynamic_wi8",
            quantizer=f"{_QUANTIZERS}.static_quantization:static_file",
            calibration="required",
            activation_bits=16,
            blocks=_STATIC_BLOCKS,
        ),
        Recipe(
            name="mixed",
            weights="float32",
            activations="dynamic",
            summary="int4, int8 or float32 for each layer, within a limit of size or loss",
            bounds=_INT4,
            wider="dynamic_wi8",
            quantizer=f"{_QUANTIZERS}.mixed_precision:mixed_file",
            calibration="required",
            blocks=("plain", "bottleneck", "relative"),
            chooses_formats=True,
            unsupported=_INT4_BLOCKS,
        ),
    )
}

# Options whose values are names in the table.
RecipeName = Annotated[str, lambda: tuple(RECIPES)]
QatRecipe = Annotated[str, lambda: ("none", *(recipe.name for recipe in RECIPES.values() if recipe.rounding))]
