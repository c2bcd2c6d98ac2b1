"""Gradients made ready for an optimizer: clipped together, and dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"


def dense_and_clipped(gradients: Sequence[Gradient], clip_norm: float | None) -> list[tf.Tensor]:
    """Dense gradients whose global norm is at most `clip_norm` (Pascanu et al. 2013, algorithm 1).

    The norm is over all gradients together. `tf.clip_by_global_norm` takes that of a table's rows as they come; here
    rows that are named twice are summed first. Adam's moments decay in every row at every step, so a table's update
    is dense whatever its gradient is; clipping before the rows are spread out saves two passes over the table.

    Args:
      gradients: dense, or rows of a table.
      clip_norm: the highest norm, or None for no clipping. At or below it no bit changes.

    Returns:
      Tensors of the weights' shapes, in the order of `gradients`.
    """
    if clip_norm is not None:
        gradients = [_sum_duplicate_rows(gradient) for gradient in gradients]
        squares = [tf.nn.l2_loss(_values(gradient)) for gradient in gradients]
        norm = tf.sqrt(2.0 * tf.add_n(squares))
        scale = clip_norm / tf.maximum(norm, clip_norm)
        gradients = [_scaled(gradient, scale) for gradient in gradients]
    return [dense(gradient) for gradient in gradients]


def _sum_duplicate_rows(gradient: Gradient) -> Gradient:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, position = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, position, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _values(gradient: Gradient) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _scaled(gradient: Gradient, scale: tf.Tensor) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
    return gradient * scale


def dense(gradient: Gradient) -> tf.Tensor:
    """A gradient as a tensor of its weight's shape."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    # `tf.convert_to_tensor` would do the same and warn about memory.
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, gradient.dense_shape[0])
