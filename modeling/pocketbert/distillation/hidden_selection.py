"""Selects tokens and activations in hidden states (HSK, Liu et al. 2021, sections 4.2 and 4.3).

Ties take the lower position or index. Shapes: B batch, S length, N heads, H width, k tokens, n activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples
from pocketbert.training.objective import Batch


def candidates(batch: Batch, excluded_id: int | None) -> tf.Tensor:
    """Returns bool [B, S]: real tokens, except those with an excluded id."""
    real = batch["input_mask"] > 0
    return real if excluded_id is None else real & (batch["input_word_ids"] != excluded_id)


def kept_weights(available: tf.Tensor, tokens: int) -> tf.Tensor:
    """Returns int32 [B, k]: 1 for the first min(k, candidates) places; depends on the inputs only."""
    counts = tf.reduce_sum(tf.cast(available, tf.int32), 1, keepdims=True)
    return tf.cast(tf.range(tokens)[tf.newaxis] < counts, tf.int32)


def candidate_counts(encoded: EncodedExamples, excluded_id: int | None) -> np.ndarray:
    """Counts each example's `candidates`, int64 [N], without TensorFlow."""
    if excluded_id is None:
        return encoded.lengths
    return np.add.reduceat(encoded.word_ids != excluded_id, encoded.offsets[:-1], dtype=np.int64)


def left_positions(length: tf.Tensor, rows: tf.Tensor, tokens: int) -> tf.Tensor:
    """Returns the first positions, int32 [B, k]; the last one again beyond the length."""
    return tf.tile(tf.minimum(tf.range(tokens), length - 1)[tf.newaxis], [rows, 1])


def attended_positions(attention: tf.Tensor, available: tf.Tensor, tokens: int) -> tf.Tensor:
    """Returns the k candidates that the first token attends to most, int32 [B, k] (eq. 6).

    They are in order of position; 0 where an example has fewer candidates.

    Args:
      attention: [B, N, S, S], probabilities or logits, queries before keys; the score is the mean over heads.
      available: bool [B, S], the candidates.
      tokens: k.
    """
    scores = tf.reduce_mean(tf.cast(attention[:, :, 0, :], tf.float32), 1)
    scores = tf.where(available, scores, -math.inf)
    short = tf.maximum(tokens - tf.shape(scores)[1], 0)
    scores = tf.pad(scores, [[0, 0], [0, short]], constant_values=-math.inf)
    best = tf.math.top_k(scores, tokens)
    ordered = tf.sort(tf.where(best.values > -math.inf, best.indices, tf.int32.max), axis=-1)
    return tf.ensure_shape(tf.where(ordered < tf.int32.max, ordered, 0), [None, tokens])


def largest(vectors: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each vector's n largest magnitudes in order of index: values [..., n] and indices, int32 [..., n].

    Args:
      vectors: [..., H].
      count: n.
    """
    indices = tf.sort(tf.math.top_k(tf.abs(vectors), count).indices, axis=-1)
    return tf.gather(vectors, indices, batch_dims=indices.shape.rank - 1), indices


def above_threshold(vectors: tf.Tensor, share: Fraction) -> tf.Tensor:
    """Zeroes all but a share of a tensor's activations: the authors' width mask, which depends on the whole batch."""
    magnitudes = tf.reshape(tf.abs(vectors), [-1])
    count = tf.maximum(tf.cast(tf.round(tf.cast(tf.size(magnitudes), tf.float64) * float(share)), tf.int32), 1)
    threshold = tf.math.top_k(magnitudes, count).values[-1]
    return tf.where(tf.abs(vectors) >= threshold, vectors, 0.0)


def widened(values: tf.Tensor, indices: tf.Tensor | Sequence[int], width: int) -> tf.Tensor:
    """Puts kept activations back in their places, [B, k, H]; the others are zero.

    Args:
      values: [B, k, n].
      indices: the values' places: int32 [B, k, n], or one static sequence of n.
      width: H.
    """
    if isinstance(indices, Sequence):
        ranks = {index: rank for rank, index in enumerate(indices)}
        padded = tf.pad(values, [[0, 0], [0, 0], [0, 1]])
        return tf.gather(padded, [ranks.get(index, len(ranks)) for index in range(width)], axis=-1)
    shape = tf.shape(values)
    rows = tf.reshape(indices, [-1, values.shape[-1]])
    # A flat index addresses each element of [B·k, H].
    flat = rows + tf.range(tf.shape(rows)[0])[:, tf.newaxis] * width
    full = tf.scatter_nd(tf.reshape(flat, [-1, 1]), tf.reshape(values, [-1]), [tf.shape(rows)[0] * width])
    return tf.reshape(full, tf.concat([shape[:2], [width]], 0))
