"""Multi-label classification: any number of labels per text or pair, each with its own probability."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.tasks.classification import ClassificationHead
from pocketbert.tasks.decisions import DecisionChoice, label_thresholds
from pocketbert.tasks.interfaces import Decisions
from pocketbert.tasks.metrics import AUROC, MULTI_LABEL_METRICS, label_results, names_of_f1, root_mean_square
from pocketbert.tasks.mistakes import listed
from pocketbert.tasks.outputs import mean_over_labelled
from pocketbert.tasks.texts import TextTask
from pocketbert_runtime.answers.multi_label import LabelAnswers
from pocketbert_runtime.answers.probabilities import sigmoid_of


class MultiLabelHead(ClassificationHead):
    """The classification head with one sigmoid per label, as in transformers' `multi_label_classification`."""

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Mean binary cross-entropy over labels and examples, in nats. Labels are 0 or 1, [B, labels]."""
        return {"logits": tf_keras.losses.BinaryCrossentropy(from_logits=True)}


class MultiLabel(LabelAnswers, TextTask):
    """Any number of labels for a text or a pair."""

    linear_form = "labels"

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """Micro-F1, macro-F1 and the share of examples with all labels correct."""
        return MULTI_LABEL_METRICS, MULTI_LABEL_METRICS[0]

    def selection_metrics(self, dev: Any) -> tuple[str, ...]:
        """The default metrics, AUROC, and F1 on each label."""
        return (*MULTI_LABEL_METRICS, AUROC, *names_of_f1(self.config.labels))

    @property
    def gate_metrics(self) -> tuple[str, ...]:
        """The same as in `selection_metrics`."""
        return self.selection_metrics(None)

    @property
    def weighted_classes(self) -> tuple[str, ...]:
        """The labels."""
        return self.config.labels

    def loss_factors(self, class_weights: np.ndarray, labels: tf.Tensor) -> tf.Tensor:
        """The label's weight for labels with 1, else 1, [B, labels]: PyTorch's `pos_weight`."""
        return tf.where(labels == 1, tf.constant(class_weights), 1.0)

    def head(self, encoder: EncoderConfig) -> MultiLabelHead:
        """Returns a head with one independent logit per label."""
        return MultiLabelHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean binary cross-entropy, in nats. Labels are int32 [B, labels], 0 or 1; negative: no labels."""
        return self._loss(outputs, tf.cast(tf.maximum(labels, 0), tf.float32), labels, weights)

    def _loss(
        self, outputs: Mapping[str, tf.Tensor], targets: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None
    ) -> tf.Tensor:
        logits = tf.cast(outputs["logits"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
        if weights is not None and weights.shape.rank == 2:
            losses, weights = losses * weights, None
        return mean_over_labelled(tf.reduce_mean(losses, axis=-1), labels, weights)

    def uniform_loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """See `Task.uniform_loss`; each label is a decision between two."""
        return self._loss(outputs, 0.5 * tf.ones_like(labels, tf.float32), labels, weights)

    def temperature(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """See `TextTask.temperature`; each label is a decision between the logits 0 and x."""
        from pocketbert.tasks.temperature import softmax_temperature

        flat = logits.reshape(-1)
        return softmax_temperature(np.stack([np.zeros_like(flat), flat], axis=1), labels.reshape(-1))

    def choose(self, choice: DecisionChoice, logits: np.ndarray, labels: np.ndarray) -> TaskConfig:
        """See `TextTask.choose`: a threshold for each label."""
        assert choice.metric is not None
        return dataclasses.replace(self.config, decisions=label_thresholds(logits, labels, choice.metric))

    def choice_problems(self, choice: DecisionChoice) -> list[str]:
        """See `SupervisedTask.choice_problems`."""
        problems = []
        if choice.keep is not None:
            problems.append("reject is for one of several classes; received it for several labels; leave it out")
        if choice.metric == MULTI_LABEL_METRICS[2]:
            problems.append(
                f"decision_thresholds maximizes micro-F1 or the F1 of each label; received metric={choice.metric}; "
                f"choose {' or '.join(MULTI_LABEL_METRICS[:2])}"
            )
        return problems

    def right(self, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Each label of each example is a decision."""
        return (labels == predictions).astype(np.float64).sum(axis=1)

    def certainty(self, logits: np.ndarray) -> np.ndarray:
        """Each decision's probability, for or against a label, [N, labels]."""
        return sigmoid_of(np.where(self.decide(logits) == 1, logits, -logits))

    def in_words(self, answer: Any) -> str:
        """Lists the labels' names."""
        return listed(
            [label for label, is_given in zip(self.config.labels, answer, strict=True) if is_given], "no label"
        )

    def constant_answer(self, labels: np.ndarray) -> tuple[np.ndarray, str]:
        """The most frequent labels, as many as maximize micro-F1."""
        constant = best_constant_labels(labels)
        chosen = [repr(label) for label, always in zip(self.config.labels, constant, strict=True) if always]
        return constant, f"always {' and '.join(chosen)}" if chosen else "never a label"

    def class_results(self, labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
        """Scores per label."""
        return label_results(self.config.labels, labels, predictions)

    def decisions(self, reference: np.ndarray, answers: np.ndarray, tolerance: float) -> Decisions:
        """Compares each label in each example. A logit within the tolerance around its threshold is a near tie."""
        near_tie = np.abs(self._above_thresholds(reference)) <= tolerance * root_mean_square(reference)
        same = self.decide(reference) == self.decide(answers)
        return Decisions(same, near_tie, "decisions, one for each example and label,")


def best_constant_labels(labels: np.ndarray) -> np.ndarray:
    """The constant prediction, 0 and 1, [labels], with the highest micro-F1."""
    counts = labels.sum(axis=0, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    size = np.arange(1, len(order) + 1)
    micro_f1 = 2 * np.cumsum(counts[order]) / np.maximum(size * len(labels) + counts.sum(), 1)
    constant = np.zeros(len(order), np.int32)
    if counts.any():
        constant[order[: 1 + int(micro_f1.argmax())]] = 1
    return constant
