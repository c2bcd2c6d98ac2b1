"""Recipes: number formats of an exported file, named by one grammar.

A name describes weights and activations: `float32` and `float16` are the type of all weights; `dynamic_wi8` has int8
weights (`wi8`) and activations that are quantized at run time (`dynamic`). Dense layers then compute in int8;
everything else stays float32. `dynamic_wi4` stores int4 weights (`wi4`) with a float16 scale for each block of 32 or
64. `static_wi8_ai8` quantizes the inputs and outputs of dense layers to int8 with fixed ranges (`static`, `ai8`), which
calibration texts determine. `static_wi8_ai8_full` does so with every operator that keeps its accuracy, and
`static_wi8_ai16` uses int16 activations (`ai16`) where int8 would lose accuracy. `mixed` chooses int4, int8 or float32
weights for each layer.

`dynamic_wi8` uses TensorFlow's converter. ai-edge-quantizer's file is neither faster nor smaller (it is larger until
calibration makes its GATHER static int8). `dynamic_wi4` and static recipes use ai-edge-quantizer: the converter has
no int4 weights, and in static int8 it quantizes every operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import tensorflow as tf

from pocketbert.errors import UserError, did_you_mean
from pocketbert.notation import argument
from pocketbert_export.tflite.runtimes import LITERT, TFLITE_2_16

# int4 weights that share a scale; the smaller of the two sizes in a file.
BLOCK_SIZE = 32
WeightType = Literal["float32", "float16", "int8", "int4"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Number formats of an exported file.

    Attributes:
      name: name on the command line.
      weights: type of the weights of dense layers and of the embedding.
      activations: `float`; `dynamic`: quantized to int8 before each dense layer at run time; or `static`: quantized to
        int8 with fixed ranges from calibration.
      summary: expected size and speed, for `--help` and the documentation.
      calibration: whether export needs calibration texts, uses them if given, or has no use for them.
      unsupported: runtime → the operator that it lacks.
    """

    name: str
    weights: WeightType
    activations: Literal["float", "dynamic", "static"]
    summary: str
    calibration: Literal["none", "optional", "required"] = "none"
    unsupported: Mapping[str, str] = field(default_factory=dict)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="float32", weights="float32", activations="float", summary="the model's own numbers"),
        Recipe(
            name="float16",
            weights="float16",
            activations="float",
            summary="half the size; float32 arithmetic, as fast as float32",
            calibration="optional",
        ),
        Recipe(
            name="dynamic_wi8",
            weights="int8",
            activations="dynamic",
            summary="a quarter of the size, about a third of the time",
        ),
        Recipe(
            name="dynamic_wi4",
            weights="int4",
            activations="dynamic",
            summary="a seventh of the size, slightly slower than dynamic_wi8",
            calibration="optional",
            unsupported={TFLITE_2_16: "FULLY_CONNECTED with int4 weights in blocks (version 12)"},
        ),
        Recipe(
            name="static_wi8_ai8",
            weights="int8",
            activations="static",
            summary="as small and fast as dynamic_wi8; fixed ranges, for processors without dynamic quantization",
            calibration="required",
        ),
        Recipe(
            name="static_wi8_ai8_full",
            weights="int8",
            activations="static",
            summary="every operator in int8, except norms and sums with LayerNorm; for NPUs",
            calibration="required",
        ),
        Recipe(
            name="static_wi8_ai16",
            weights="int8",
            activations="static",
            summary="int16 activations where int8 loses accuracy; for NPUs, and very slow on CPUs",
            calibration="required",
        ),
        Recipe(
            name="mixed",
            # The largest type that a layer may have.
            weights="float32",
            activations="dynamic",
            summary="int4, int8 or float32 for each layer, within a limit of size or loss",
            calibration="required",
            unsupported={TFLITE_2_16: "FULLY_CONNECTED with int4 weights in blocks (version 12)"},
        ),
    )
}


# Bytes per element of a matrix. A block of int4 weights has a float16 scale.
BYTES_PER_WEIGHT: dict[WeightType, float] = {"float32": 4, "float16": 2, "int8": 1, "int4": 0.5 + 2 / BLOCK_SIZE}


def get_recipe(name: str, runtime: str = LITERT) -> Recipe:
    """Returns the recipe called `name`.

    Args:
      name: name of the recipe.
      runtime: oldest runtime that must execute it.
    Raises:
      UserError: there is no such recipe, or the runtime cannot execute it.
    """
    if name not in RECIPES:
        raise UserError(f"a recipe must be one of {', '.join(RECIPES)}; received {name!r}{did_you_mean(name, RECIPES)}")
    recipe = RECIPES[name]
    if runtime in recipe.unsupported:
        raise UserError(
            f"{argument('runtime', runtime)} must have the operators of the recipe; {name} needs "
            f"{recipe.unsupported[runtime]}; use {argument('recipe', 'dynamic_wi8')} or {argument('runtime', LITERT)}"
        )
    return recipe


def configure(converter: tf.lite.TFLiteConverter, recipe: Recipe) -> None:
    """Configures the converter.

    Args:
      converter: changed in place.
      recipe: number formats.
    """
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    # Others are made of a float32 file.
    if recipe.weights == "int8" and recipe.activations == "dynamic":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
