"""Chooses a recipe, and sets the converter for it."""

from __future__ import annotations

import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.notation import argument
from pocketbert.recipes import RECIPES, Recipe, WeightType
from pocketbert_export.tflite.runtimes import LITERT

# Number of int4 weights with a common scale; the smaller size in a file.
BLOCK_SIZE = 32
# Bytes per matrix element. A block of int4 weights has a float16 scale.
BYTES_PER_WEIGHT: dict[WeightType, float] = {"float32": 4, "float16": 2, "int8": 1, "int4": 0.5 + 2 / BLOCK_SIZE}


def get_recipe(name: str, runtime: str = LITERT) -> Recipe:
    """Returns a recipe by name; raises a `UserError` if there is none, or the runtime cannot execute it."""
    if name not in RECIPES:
        raise UserError(f"a recipe must be one of {', '.join(RECIPES)}; received {name!r}{did_you_mean(name, RECIPES)}")
    recipe = RECIPES[name]
    if runtime in recipe.unsupported:
        raise UserError(
            f"{argument('runtime', runtime)} must have the operators of the recipe; {name} needs "
            f"{recipe.unsupported[runtime]}; use {argument('recipe', 'dynamic_wi8')} or {argument('runtime', LITERT)}"
        )
    return recipe


def check_blocks(recipe: Recipe, config: EncoderConfig) -> None:
    """Raises a `UserError` if a recipe does not hold for an encoder's kind of block."""
    others = [other.name for other in RECIPES.values() if config.block in other.blocks]
    remedy = f"choose {', '.join(others[:-1])} or {others[-1]}"
    raise_if_any(config.block_problems(argument("recipe", recipe.name), recipe.blocks, remedy), "export")


def configure(converter: tf.lite.TFLiteConverter, recipe: Recipe) -> None:
    """Configures a converter in place."""
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    # The others come from a float32 file.
    if recipe.weights == "int8" and recipe.activations == "dynamic":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
