"""A small task in one file, as CONTRIBUTING describes it: grades in an order, such as 1 to 5 stars.

Each grade but the lowest has a logit for "at least this one", as in ordinal regression (Frank and Hall 2001).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig, TaskRules
from pocketbert.tasks.classification import SentenceHead
from pocketbert.tasks.outputs import mean_over_examples
from pocketbert.tasks.texts import TextTask

RULES = TaskRules(min_labels=2)


class GradesHead(SentenceHead):
    """A logit for each grade but the lowest."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config, task, len(task.labels) - 1)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        return {"logits": self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        return {"logits": GradesLoss()}


class GradesLoss(tf_keras.losses.Loss):
    """Binary cross-entropy of the steps that a grade has passed, [B]."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        labels = tf.reshape(tf.cast(y_true, tf.int32), [-1, 1])
        passed = tf.cast(labels > tf.range(tf.shape(y_pred)[-1]), tf.float32)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(passed, y_pred), axis=-1)


class Grades(TextTask):
    """One of several labels in an order, the lowest first."""

    kind = "grades"

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        return ("accuracy", "spearman"), "spearman"

    @property
    def num_logits(self) -> int:
        return len(self.config.labels) - 1

    def head(self, encoder: EncoderConfig) -> GradesHead:
        return GradesHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        return mean_over_examples(GradesLoss().call(labels, outputs["logits"]), labels, weights)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return (logits >= 0).sum(axis=1).astype(np.int32)

    def constant_answer(self, labels: np.ndarray) -> tuple[float, str]:
        median = int(np.median(labels))
        return float(median), f"always {self.config.labels[median]!r}"

    def describe(self, logits: np.ndarray, **options: Any) -> list[dict[str, Any]]:
        return [{"label": self.config.labels[grade]} for grade in self.decide(logits)]
