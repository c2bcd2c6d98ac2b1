"""One name for every weight: the path of attributes that leads to it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras


def weights_by_path(layer: tf_keras.layers.Layer) -> dict[str, tf.Variable]:
    """Maps each weight's attribute path to its variable.

    Keras' own variable names depend on the order of construction, so they are never keys. A path such as
    `layers.0.attention.query.kernel` is read off the objects themselves; items of a list go by their index,
    and `input_projection`, `output_projection` and `layers_` are `input`, `output` and `layers`, names that Keras
    keeps to itself.

    Args:
      layer: a layer of this package, or one made of such layers.
    Returns:
      Path → variable, in the order of construction.
    """
    return dict(_walk(layer, ""))


def initialize_weights(layer: tf_keras.layers.Layer, standard_deviation: float, seed: int) -> None:
    """Gives kernels and tables truncated-normal values that depend on the path and the seed alone.

    Biases, norms and whatever else is one-dimensional keep what their layer gave them.

    Args:
      layer: the layer whose weights are set.
      standard_deviation: of the normal distribution before truncation at two of them.
      seed: the model's seed.
    """
    for path, variable in weights_by_path(layer).items():
        if variable.shape.rank < 2:
            continue
        draw = tf.random.stateless_truncated_normal(
            variable.shape, seed=(seed, zlib.crc32(path.encode()) & 0x7FFFFFFF), stddev=standard_deviation
        )
        variable.assign(draw)


def _walk(value: Any, prefix: str) -> Iterator[tuple[str, tf.Variable]]:
    if isinstance(value, tf.Variable):
        yield prefix, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{prefix}.{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{prefix}.{key}")
    elif isinstance(value, tf_keras.layers.Layer):
        for name, child in vars(value).items():
            if not name.startswith("_"):
                yield from _walk(child, f"{prefix}.{_path_name(name)}" if prefix else _path_name(name))


def _path_name(attribute: str) -> str:
    return attribute.removesuffix("_projection").removesuffix("_")
