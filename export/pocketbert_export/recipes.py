"""Recipes: number formats of an exported file, named by one grammar.

A name describes weights and activations: `float32` and `float16` are the type of all weights; `dynamic_wi8` has int8
weights (`wi8`) and activations that are quantized at run time (`dynamic`). Dense layers then compute in int8;
everything else stays float32.

`dynamic_wi8` uses TensorFlow's converter. ai-edge-quantizer's file is neither faster nor smaller (it is larger until
calibration makes its GATHER static int8). It also keeps the float file's operator versions, so old runtimes return
wrong outputs instead of rejecting the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from pocketbert.errors import UserError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Number formats of an exported file.

    Attributes:
      name: name on the command line.
      weights: type of the weights of dense layers and of the embedding.
      activations: `float`, or `dynamic`: quantized to int8 before each dense layer at run time.
      summary: expected size and speed, for `--help` and the documentation.
    """

    name: str
    weights: Literal["float32", "float16", "int8"]
    activations: Literal["float", "dynamic"]
    summary: str


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="float32", weights="float32", activations="float", summary="the model's own numbers"),
        Recipe(
            name="float16",
            weights="float16",
            activations="float",
            summary="half the size; float32 arithmetic, as fast as float32",
        ),
        Recipe(
            name="dynamic_wi8",
            weights="int8",
            activations="dynamic",
            summary="a quarter of the size, about a third of the time",
        ),
    )
}


def get_recipe(name: str) -> Recipe:
    """Returns the recipe called `name`.

    Raises:
      UserError: there is no such recipe.
    """
    if name not in RECIPES:
        raise UserError(f"a recipe must be one of {', '.join(RECIPES)}; received {name!r}{did_you_mean(name, RECIPES)}")
    return RECIPES[name]


def configure(converter: tf.lite.TFLiteConverter, recipe: Recipe) -> None:
    """Configures the converter.

    Args:
      converter: changed in place.
      recipe: number formats.
    """
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if recipe.weights == "float32":
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if recipe.weights == "float16":
        converter.target_spec.supported_types = [tf.float16]
