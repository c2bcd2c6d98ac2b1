"""Recipes: number formats of an exported file, named by one grammar.

A recipe's name says what happens to weights and activations: `float32` and `float16` are the type of
all weights; `dynamic_wi8` has int8 weights (`wi8`) and activations that are quantized while the file runs
(`dynamic`). The arithmetic of linear maps is int8 then; everything else stays float32.

`dynamic_wi8` is TensorFlow's converter's work. ai-edge-quantizer's file is neither faster nor smaller (larger, until
its GATHER is made static int8 by calibration), and keeps the float file's operator versions, on which an old runtime
answers nonsense instead of refusing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from pocketbert.errors import UserError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A way to store the numbers.

    Attributes:
      name: the name on the command line.
      weights: the type of the linear maps' weights and of the embedding table.
      activations: `float`, or `dynamic`: quantized to int8 in front of each linear map, while running.
      summary: what to expect, for `--help` and the documentation.
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
    """The recipe called `name`.

    Raises:
      UserError: there is none.
    """
    if name not in RECIPES:
        raise UserError(f"a recipe must be one of {', '.join(RECIPES)}; received {name!r}{did_you_mean(name, RECIPES)}")
    return RECIPES[name]


def configure(converter: tf.lite.TFLiteConverter, recipe: Recipe) -> None:
    """Tells the converter how to store the numbers.

    Args:
      converter: changed in place.
      recipe: what to do.
    """
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if recipe.weights == "float32":
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if recipe.weights == "float16":
        converter.target_spec.supported_types = [tf.float16]
