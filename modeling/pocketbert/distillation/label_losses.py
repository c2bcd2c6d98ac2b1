"""The losses on labels, where a method learns from them too or instead; every mean is a `masked_mean`."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.tasks.masked_lm import is_labelled
from pocketbert.tasks.span import SPAN_OUTPUTS, without_padding


def label_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy for classification, mean squared error for regression.

    Args:
      labels: int32 [B], class indices; for regression float [B], scores.
      logits: [B, C]; for regression [B].

    Returns:
      float32 scalar, mean over examples: nats, or squared units of the score.
    """
    # Counted by the labels: where micro-batches are counted first, that leaves the networks out of it.
    counted = tf.ones_like(labels)
    if logits.shape.rank == 1:
        return mean_squared_error(labels, logits, counted)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
    return masked_mean(losses, counted)


def span_label_loss(positions: tf.Tensor, outputs: Mapping[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of an answer's first and last token, their mean (Devlin et al. 2019, section 4.2).

    Args:
      positions: int32 [B, 2].
      outputs: `start_logits` and `end_logits`, [B, S].
      mask: int32 [B, S], 1 = token.

    Returns:
      float32 scalar, mean over examples, nats.
    """
    logits = without_padding({name: tf.cast(value, tf.float32) for name, value in outputs.items()}, mask)
    counted = tf.ones_like(positions[:, 0])
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(positions[:, column], logits[name])
        for column, name in enumerate(SPAN_OUTPUTS)
    ]
    return masked_mean(tf.add_n(losses) / len(losses), counted)


def masked_lm_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of masked words (Devlin et al. 2019, section 3.1, task 1, https://arxiv.org/abs/1810.04805).

    Args:
      labels: int32 [B, P], the words' ids; negative labels do not count.
      logits: [B, P, V].

    Returns:
      float32 scalar, mean over the batch's masked words, nats.
    """
    # One row a position. For other ranks TensorFlow's function checks sizes at run time, and a graph never leaves a
    # check out, so recording the means would cost a pass through the student.
    labels = tf.reshape(labels, [-1])
    logits = tf.reshape(tf.cast(logits, tf.float32), [-1, logits.shape[-1]])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
    return masked_mean(losses, is_labelled(labels))


def next_sentence_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of the next sentence (Devlin et al. 2019, section 3.1, task 2).

    Args:
      labels: int32 [B], 0 = the second text follows the first, 1 = it is from elsewhere.
      logits: [B, 2].

    Returns:
      float32 scalar, mean over examples, nats.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
    return masked_mean(losses, tf.ones_like(labels))


def mean_squared_error(target: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean squared difference of scores [B], of those with a mask [B] of 1; float32; the target gets no gradient."""
    target = tf.stop_gradient(tf.cast(target, tf.float32))
    return masked_mean(tf.math.squared_difference(tf.cast(scores, tf.float32), target), mask)
