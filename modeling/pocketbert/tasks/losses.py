"""What the heads' losses are taken of, and the cross-entropy that most of them are."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.layers.checks import require
from pocketbert.layers.loss_normalization import masked_mean


class Labelled(NamedTuple):
    """An output of a head with its labels, and weights or None, as loss and metrics take them."""

    outputs: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor | None = None


def mean_over_examples(losses: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
    """The `masked_mean` of the examples' losses.

    Args:
      losses: [B].
      labels: [B], any of the examples' labels. They are counted in place of the losses: where micro-batches are counted
        first, that leaves the networks out of it.
      weights: float32 [B], factors of the losses that do not enter the divisor, or None.

    Returns:
      float32 scalar.
    """
    return masked_mean(losses if weights is None else losses * weights, tf.ones_like(labels))


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class CrossEntropy(tf_keras.losses.Loss):
    """Cross-entropy of logits against indices, in nats.

    Args:
      indices: what the labels are, in the plural, for messages.
      reduction: Keras'.
      name: the loss's name.
    """

    def __init__(
        self,
        indices: str = "class indices",
        reduction: str = tf_keras.losses.Reduction.AUTO,
        name: str = "cross_entropy",
    ) -> None:
        super().__init__(reduction=reduction, name=name)
        self.indices = indices

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Maps labels [...] and logits [..., C] to losses [...].

        Raises:
          UserError: a label is not between 0 and C - 1; in a graph, see `layers.checks.require`.
        """
        classes = tf.shape(y_pred)[-1]
        labels = tf.reshape(tf.cast(y_true, tf.int32), tf.shape(y_pred)[:-1])
        wrong = tf.boolean_mask(labels, (labels < 0) | (labels >= classes))
        known = y_pred.shape[-1]
        limit = f"0 to {known - 1}" if known is not None else "0 up to the inputs' length"
        rule = f"labels must be {self.indices} from {limit}"
        with tf.control_dependencies(require(tf.size(wrong) == 0, rule, tf.reduce_max(wrong))):
            labels = tf.identity(labels)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)

    def get_config(self) -> dict[str, Any]:
        """The arguments of a new instance."""
        return {**super().get_config(), "indices": self.indices}
