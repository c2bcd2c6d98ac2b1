"""Regression: one number for a text or a pair."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.tasks.classification import SentenceHead
from pocketbert.tasks.outputs import mean_over_labelled
from pocketbert.tasks.texts import TextTask
from pocketbert_runtime.answers.regression import ScoreAnswers


class RegressionHead(SentenceHead):
    """One number, in the labels' unit; for `TaskConfig.activation` sigmoid, from 0 to 1."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config, task, 1)
        self._has_sigmoid = task.activation == "sigmoid"

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`logits`, float32 [B]: the score."""
        return {"logits": self.answer(self(encoded, training=training))}

    def answer(self, logits: tf.Tensor) -> tf.Tensor:
        """See `SentenceHead.answer`."""
        score = tf.squeeze(logits, axis=-1)
        return tf.sigmoid(score) if self._has_sigmoid else score

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Mean squared error against float labels [B]."""
        return {"logits": MeanSquaredError()}


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class MeanSquaredError(tf_keras.losses.Loss):
    """Mean over examples. Keras' own loss averages the last axis, the batch here."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Squared differences, [B]."""
        return tf.math.squared_difference(y_pred, tf.reshape(tf.cast(y_true, y_pred.dtype), tf.shape(y_pred)))


class Regression(ScoreAnswers, TextTask):
    """A score for a text or a pair."""

    linear_form = "scores"
    # If scores vary by less than a quarter of their size, the gate compares errors with that quarter.
    least_centred_scale = 0.25

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """Pearson and Spearman correlation."""
        return ("pearson", "spearman"), "spearman"

    def head(self, encoder: EncoderConfig) -> RegressionHead:
        """Returns a head with one output."""
        return RegressionHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean squared error over examples, in squared score units. Labels are scores, float32 [B]; NaN: no label."""
        scores = tf.cast(labels, tf.float32)
        # A NaN difference would make the gradient NaN in spite of its weight.
        finite = tf.where(tf.math.is_nan(scores), 0.0, scores)
        losses = tf.math.squared_difference(tf.cast(outputs["logits"], tf.float32), finite)
        return mean_over_labelled(losses, scores, weights)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Returns the scores unchanged."""
        return logits

    def right(self, labels: np.ndarray, predictions: np.ndarray) -> None:
        """None: a score is neither right nor wrong."""

    def constant_answer(self, labels: np.ndarray) -> tuple[float, str]:
        """The mean score; its correlation is 0."""
        return float(np.mean(labels, dtype=np.float64)), "always the mean"

    def centred(self, output: np.ndarray) -> np.ndarray:
        """Subtracts the mean over texts: only differences between scores matter."""
        return output - output.mean()
