"""Rotary position embeddings (Su et al. 2021, RoFormer, section 3.2.2, https://arxiv.org/abs/2104.09864)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf


def rotations(
    positions: int | tf.Tensor, head_size: int, theta: float, scale: float = 1.0
) -> tuple[tf.Tensor | np.ndarray, tf.Tensor | np.ndarray]:
    """Returns the cosines and the sines for `rotated`, float32.

    Features i and i + head_size/2 are one pair, as in GPT-NeoX and transformers; the paper pairs neighbours. The sines
    of the first half are negative, so no other operator changes a sign.

    Args:
      positions: a number of tokens T as an int or a scalar, for [T, head_size]; or positions, int32 [...], for
        [..., head_size].
      head_size: width of a head.
      theta: base of the angles: pair i of position p has the angle p · theta^(-2i / head_size).
      scale: factor for the rotated vectors.
    """
    if isinstance(positions, int):
        return _constants(positions, head_size, theta, scale)
    if positions.shape.rank == 0:
        positions = tf.range(positions)
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * _frequencies(head_size, theta)
    return _of_angles(angles, scale, tf)


def rotated(x: tf.Tensor, cosines: Any, sines: Any) -> tf.Tensor:
    """Rotates the pairs of features in x [..., head_size]; the tables from `rotations` broadcast to its shape."""
    first, second = tf.split(x, 2, axis=-1)
    cosines, sines = tf.cast(cosines, x.dtype), tf.cast(sines, x.dtype)
    return x * cosines + tf.concat([second, first], axis=-1) * sines


@functools.lru_cache(maxsize=64)
def _constants(count: int, head_size: int, theta: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    angles = np.arange(count, dtype=np.float32)[:, np.newaxis] * _frequencies(head_size, theta)
    cosines, sines = _of_angles(angles, np.float32(scale), np)
    return cosines, sines


def _of_angles(angles: Any, scale: Any, library: Any) -> tuple[Any, Any]:
    cosines, sines = scale * library.cos(angles), scale * library.sin(angles)
    concatenate = np.concatenate if library is np else tf.concat
    return concatenate([cosines, cosines], axis=-1), concatenate([-sines, sines], axis=-1)


def _frequencies(head_size: int, theta: float) -> np.ndarray:
    # In float32, as in transformers: at position 8,191 an angle's rounding is far above float32's for its cosine.
    return np.float32(1) / np.float32(theta) ** (np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size))
