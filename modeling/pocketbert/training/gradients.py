"""Clips gradients by global norm, and converts sparse gradients to dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"


def dense_and_clipped(gradients: Sequence[Gradient], clip_norm: float | None) -> list[tf.Tensor]:
    """Clips gradients by their global norm and makes them dense (Pascanu et al. 2013, algorithm 1).

    Sums duplicate rows in sparse gradients before the norm; `tf.clip_by_global_norm` does not. Adam's moments decay in
    every row at every step, so an embedding's update is dense in any case. Clipping before the conversion saves two
    passes over the embedding.

    Args:
      gradients: dense or sparse (`tf.IndexedSlices`).
      clip_norm: maximum global norm; None for no clipping. Gradients with a norm up to `clip_norm` keep their bits.
    Returns:
      Dense gradients with the weights' shapes, in order.
    """
    if clip_norm is not None:
        gradients = [_sum_duplicate_rows(gradient) for gradient in gradients]
        squares = [tf.nn.l2_loss(getattr(gradient, "values", gradient)) for gradient in gradients]
        norm = tf.sqrt(2.0 * tf.add_n(squares))
        scale = clip_norm / tf.maximum(norm, clip_norm)
        gradients = [
            tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
            if isinstance(gradient, tf.IndexedSlices)
            else gradient * scale
            for gradient in gradients
        ]
    return [dense(gradient) for gradient in gradients]


def _sum_duplicate_rows(gradient: Gradient) -> Gradient:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, position = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, position, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def dense(gradient: Gradient) -> tf.Tensor:
    """Converts a gradient to a tensor with its weight's shape."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    # `tf.convert_to_tensor` would do the same and warn about memory.
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, gradient.dense_shape[0])
