"""Regression: one number for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.tasks.classification import SentenceHead


class RegressionHead(SentenceHead):
    """One number, in the unit of the labels.

    Args:
      config: the encoder's architecture.
      task: a regression task.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config, task, 1)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`logits`, float32 [B]."""
        return {"logits": tf.squeeze(self(encoded, training=training), axis=-1)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Mean squared error against float labels [B]."""
        return {"logits": MeanSquaredError()}


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class MeanSquaredError(tf_keras.losses.Loss):
    """Mean over examples; Keras' own takes the mean over the last axis, which here is the batch."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Squared differences, [B]."""
        return tf.math.squared_difference(y_pred, tf.reshape(tf.cast(y_true, y_pred.dtype), tf.shape(y_pred)))
