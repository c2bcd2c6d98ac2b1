"""A task's own losses, where a method learns from labels too or instead; every mean is a `masked_mean`."""

from __future__ import annotations

import tensorflow as tf

from pocketbert.distillation.means import masked_mean


def label_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy for classification, mean squared error for regression.

    Args:
      labels: int32 [B], class indices; for regression float [B], scores.
      logits: [B, C]; for regression [B].

    Returns:
      float32 scalar, mean over examples: nats, or squared units of the score.
    """
    if logits.shape.rank == 1:
        return mean_squared_error(labels, logits)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
    return masked_mean(losses, tf.ones_like(losses))


def mean_squared_error(target: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Mean squared difference of scores [B], float32; the target gets no gradient."""
    target = tf.stop_gradient(tf.cast(target, tf.float32))
    losses = tf.math.squared_difference(tf.cast(scores, tf.float32), target)
    return masked_mean(losses, tf.ones_like(losses))
