"""Classification: one label for a text or a pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.core import Dense, activate
from pocketbert.layers.dropout import Dropout
from pocketbert.tasks.class_names import positive_class
from pocketbert.tasks.decisions import DecisionChoice, class_thresholds, reject_threshold
from pocketbert.tasks.interfaces import Decisions
from pocketbert.tasks.metrics import AUROC, class_results, names_of_f1, root_mean_square
from pocketbert.tasks.outputs import CrossEntropy, mean_over_labelled, uniform_cross_entropy, unit_vectors
from pocketbert.tasks.prediction_layers import PredictionLayers
from pocketbert.tasks.separate_pairs import FEATURES, ROWS, pair_features
from pocketbert.tasks.texts import TextTask
from pocketbert_runtime.answers.classification import ClassAnswers
from pocketbert_runtime.answers.probabilities import probabilities_of, threshold_logits

# Length for the token mean that a head reads. Unit vectors would need ten times the weights.
MEAN_LENGTH = 10.0


class SentenceHead(PredictionLayers):
    """Linear map from a text vector.

    The vector is the encoder's pooled output; without a pooler, a dense layer on the first token (DistilBERT: relu;
    ELECTRA and DeBERTa: gelu); or the token mean, scaled to length 10 (`TaskConfig.pooling`). ModernBERT's head has its
    layers on the first token or on the plain token mean. For `TaskConfig.pairs`, the map reads `pair_features` from two
    rows' vectors, and both rows have its logits.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig, outputs: int) -> None:
        super().__init__(config)
        self._reads_mean, self._separates_pairs = task.pooling == "mean", task.pairs == "separate"
        self._has_own_pooler = config.pooler == "none" and not (self._reads_mean or self._has_prediction_layers)
        if self._has_own_pooler:
            self.dense = Dense(config.hidden_size, config.hidden_size)
        self.dropout = Dropout(task.dropout)
        self.output_projection = Dense(config.hidden_size * (FEATURES if self._separates_pairs else 1), outputs)
        self._family = family_of(config.model_type)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 logits [B, outputs]."""
        return self.logits(self.pooled(encoded, training), training)

    def logits(self, vectors: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps text vectors [B, H] to float32 logits [B, outputs]."""
        x = pair_features(vectors) if self._separates_pairs else vectors
        logits = tf.cast(self.output_projection(self.dropout(x, training=training)), tf.float32)
        # One logit per row, like the labels: losses and teacher targets are means over rows.
        return tf.repeat(logits, ROWS, axis=0) if self._separates_pairs else logits

    def answer(self, logits: tf.Tensor) -> tf.Tensor:
        """The head's output `logits`, from a call's result."""
        return logits

    def pooled(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """The text vectors, [B, H]; see the class."""
        if self._has_prediction_layers:
            return self.predicted_text(encoded, self._reads_mean)
        if self._reads_mean:
            return mean_vectors(encoded["sequence_output"], encoded["input_mask"])
        if not self._has_own_pooler:
            return encoded["pooled_output"]
        x = encoded["sequence_output"][:, 0]
        if self._family.head_drops_inputs:
            x = self.dropout(x, training=training)
        x, activation = self.dense(x), self._family.head_activation
        return tf.tanh(x) if activation == "tanh" else activate(x, activation)

    def predicted_text(self, encoded: Mapping[str, tf.Tensor], reads_mean: bool) -> tf.Tensor:
        """The text vectors, [B, H], of a head with prediction layers, on the first token or on the tokens' mean."""
        x = encoded["sequence_output"]
        return self.predicted(token_means(x, encoded["input_mask"]) if reads_mean else x[:, 0])


def mean_vectors(tokens: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over real tokens in features [B, S, H], scaled to length 10, float32 [B, H]; `mask` is int32 [B, S]."""
    # The sum has the same direction, but its square exceeds float16.
    return MEAN_LENGTH * unit_vectors(token_means(tokens, mask))


def token_means(tokens: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over real tokens in features [B, S, H], float32 [B, H]; `mask` is int32 [B, S]."""
    real = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    sums = tf.reduce_sum(tf.cast(tokens, tf.float32) * real, axis=1)
    return sums / tf.maximum(tf.reduce_sum(real, axis=1), 1.0)


class ClassificationHead(SentenceHead):
    """The logits for the task's labels."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config, task, len(task.labels))

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`logits`, float32 [B, labels]."""
        return {"logits": self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against class indices [B], in nats."""
        return {"logits": CrossEntropy()}


class Classification(ClassAnswers, TextTask):
    """One label out of at least two, for a text or a pair."""

    linear_form = "classes"
    centred_by_example = True

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """Accuracy, and F1 for two labels."""
        return (("accuracy", "f1") if len(self.config.labels) == 2 else ("accuracy",)), "accuracy"

    def selection_metrics(self, dev: Any) -> tuple[str, ...]:
        """Accuracy, F1 for two labels, macro-F1, Matthews correlation, AUROC, and F1 on each label."""
        return (*self.default_metrics[0], "macro_f1", "matthews", AUROC, *names_of_f1(self.config.labels))

    @property
    def gate_metrics(self) -> tuple[str, ...]:
        """The same as in `selection_metrics`."""
        return self.selection_metrics(None)

    def head(self, encoder: EncoderConfig) -> ClassificationHead:
        """Returns a head with one logit per label."""
        return ClassificationHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean cross-entropy over examples, in nats. Labels are class indices, int32 [B]; negative: no label."""
        logits = tf.cast(outputs["logits"], tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        return mean_over_labelled(losses, labels, weights)

    def uniform_loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """See `Task.uniform_loss`."""
        return mean_over_labelled(uniform_cross_entropy(outputs["logits"]), labels, weights)

    def temperature(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """See `TextTask.temperature`; softmax over classes."""
        from pocketbert.tasks.temperature import softmax_temperature

        return softmax_temperature(logits, labels)

    def top_probability(self, logits: np.ndarray) -> float:
        return float(probabilities_of(logits).max(axis=1).mean())

    def choose(self, choice: DecisionChoice, logits: np.ndarray, labels: np.ndarray) -> TaskConfig:
        """See `TextTask.choose`: thresholds for two classes, or the threshold for rejected answers."""
        if choice.keep is not None:
            plain = probabilities_of(logits)
            decisions = reject_threshold(plain.max(axis=1), plain.argmax(axis=1) == labels, choice.keep)
        else:
            assert choice.metric is not None
            positive, names = positive_class(self.config), self.config.labels
            decisions = class_thresholds(logits, labels, choice.metric, positive=positive, classes=names)
        return dataclasses.replace(self.config, decisions=decisions)

    def choice_problems(self, choice: DecisionChoice) -> list[str]:
        """See `SupervisedTask.choice_problems`."""
        count = len(self.config.labels)
        if choice.metric is None or count == 2:
            return []
        return [f"decision_thresholds is for two classes or several labels; received {count} classes; leave it out"]

    def certainty(self, logits: np.ndarray) -> np.ndarray:
        """The predicted class's probability, [N]."""
        return np.take_along_axis(probabilities_of(logits), self.decide(logits)[:, np.newaxis], axis=1)[:, 0]

    def constant_answer(self, labels: np.ndarray) -> tuple[float, str]:
        """The most frequent label."""
        most_frequent = np.bincount(labels.astype(np.int64), minlength=len(self.config.labels)).argmax()
        return float(most_frequent), f"always {self.config.labels[most_frequent]!r}"

    def class_results(self, labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
        """Scores per class and the confusion matrix."""
        return class_results(self.config.labels, labels, predictions)

    def positive_label(self, names: Sequence[str]) -> str | None:
        """The positive label if F1 is among the metrics."""
        return self.config.labels[positive_class(self.config)] if "f1" in names else None

    def centred(self, output: np.ndarray) -> np.ndarray:
        """Subtracts the mean over classes, which softmax ignores."""
        return output - output.mean(axis=-1, keepdims=True)

    def decisions(self, reference: np.ndarray, answers: np.ndarray, tolerance: float) -> Decisions:
        """Compares predicted classes. A lead below twice the tolerance is a near tie, since two logits compete.

        With `reject_below`, two rejected answers are equal, and a probability so close to this threshold is a near tie.
        """
        thresholds = threshold_logits(self.config.decisions, of_classes=True)
        decisions = class_decisions(reference, answers, tolerance, "examples", thresholds)
        if self.config.decisions is None or self.config.decisions.reject_below is None:
            return decisions
        rejected, others = self.rejected(reference), self.rejected(answers)
        same = np.where(rejected | others, rejected == others, decisions.same)
        odds = [np.log(top) - np.log1p(-top) for top in self._tops(reference)]
        near = np.abs(odds[0] - odds[1]) <= 2 * tolerance * class_scale(reference)
        return Decisions(same, near | (decisions.near_tie & ~rejected), decisions.counted)

    def _tops(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Highest probabilities and the threshold for rejected answers, inside (0, 1)."""
        assert self.config.decisions is not None
        tiny = np.finfo(np.float64).eps
        tops = probabilities_of(logits).max(axis=1), np.asarray(self.config.decisions.reject_below)
        return np.clip(tops[0], tiny, 1 - tiny), np.clip(tops[1], tiny, 1 - tiny)


def class_decisions(
    reference: np.ndarray,
    answers: np.ndarray,
    tolerance: float,
    counted: str,
    thresholds: np.ndarray | None = None,
) -> Decisions:
    """Compares the best classes in logits [N, classes], minus thresholds [classes] if any; see `Task.decisions`."""
    scale = class_scale(reference)
    if thresholds is not None:
        reference, answers = reference - thresholds, answers - thresholds
    top = np.sort(reference, axis=1)
    near_tie = top[:, -1] - top[:, -2] <= 2 * tolerance * scale
    return Decisions(reference.argmax(axis=1) == answers.argmax(axis=1), near_tie, counted)


def class_scale(logits: np.ndarray) -> float:
    """Root mean square over logits [N, classes], without the mean over classes."""
    return root_mean_square(logits - logits.mean(axis=1, keepdims=True))
