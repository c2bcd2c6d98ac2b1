"""Embedding losses on text pairs, and on triplets with a negative text."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.tasks.outputs import unit_vectors

# Factor for cosines in the loss on positive pairs; the default in sentence-transformers.
SCALE = 20.0
# Below every logit.
_LOWEST = -6e4


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class PairLoss(tf_keras.losses.Loss):
    """Losses on embedding pairs or triplets; the labels choose between them."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Maps labels and embeddings for P examples to losses [P]; see `pair_losses`."""
        is_triplet = y_true.shape.rank == 2 and y_true.shape[1] == 2
        return pair_losses(y_pred, y_true if is_triplet else tf.reshape(y_true, [-1]))


def rows_per_example(labels: tf.Tensor) -> int:
    """Rows per example, by the labels' shape: 2, or 3 with a negative text."""
    return 3 if labels.shape.rank == 2 else 2


def pair_losses(embeddings: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Computes a loss per pair, float32 [P].

    Scores (float labels) give the squared difference to the cosine (Reimers & Gurevych 2019, section 3, regression
    objective). Positive pairs (integer labels) give each first text the cross-entropy for its second text among all in
    the batch, with 20·cosine as logits (Henderson et al. 2017, section 4, https://arxiv.org/abs/1705.00652, with
    sentence-transformers' scale). With a negative text per pair, the batch's negatives are candidates, too (section 4.4
    there; `MultipleNegativesRankingLoss` in sentence-transformers). Equal texts are no negatives: neither another text
    equal to the first text or its partner, nor the partner of an equal first text.

    Args:
      embeddings: float [2·P, D]; rows 2·i and 2·i + 1 are pair i. With negatives [3·P, D].
      labels: [2·P]: for both rows in a pair its score from -1 to 1, or integers, equal for equal texts. With negatives
        int [3·P, 2]: these integers, and the text's position in its example, 0 to 2.
    """
    units = unit_vectors(tf.cast(embeddings, tf.float32))
    rows = rows_per_example(labels)
    first, second = units[0::rows], units[1::rows]
    if not labels.dtype.is_integer:
        return tf.math.squared_difference(tf.reduce_sum(first * second, axis=-1), tf.cast(labels[0::2], tf.float32))
    numbers = labels[:, 0] if rows == 3 else labels
    queries, partners = numbers[0::rows], numbers[1::rows]
    equal = tf.equal(partners, partners[:, tf.newaxis]) | tf.equal(queries, queries[:, tf.newaxis])
    equal |= tf.equal(partners, queries[:, tf.newaxis])
    equal = tf.linalg.set_diag(equal, tf.zeros_like(queries, tf.bool))
    candidates = second
    if rows == 3:
        negatives = numbers[2::rows]
        known = tf.equal(negatives, partners[:, tf.newaxis]) | tf.equal(negatives, queries[:, tf.newaxis])
        candidates, equal = tf.concat([second, units[2::rows]], axis=0), tf.concat([equal, known], axis=1)
    logits = tf.where(equal, _LOWEST, SCALE * tf.matmul(first, candidates, transpose_b=True))
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(first)[0]), logits)


def triplet_losses(embeddings: tf.Tensor, margin: float) -> tf.Tensor:
    """Triplet losses, float32 [P]: max(‖a − p‖ − ‖a − n‖ + margin, 0).

    Source: Reimers & Gurevych 2019, section 3, triplet objective.

    Args:
      embeddings: float [3·P, D]; rows 3·i to 3·i + 2 are a text, its partner and a negative.
      margin: how much further away the negative must be than the partner.
    """
    vectors = tf.cast(embeddings, tf.float32)
    text, partner, negative = vectors[0::3], vectors[1::3], vectors[2::3]
    return tf.nn.relu(_distances(text, partner) - _distances(text, negative) + margin)


def _distances(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    # The root has no gradient at 0, the distance between equal vectors.
    squares = tf.reduce_sum(tf.math.squared_difference(first, second), axis=-1)
    is_zero = tf.equal(squares, 0.0)
    return tf.where(is_zero, 0.0, tf.sqrt(tf.where(is_zero, 1.0, squares)))
