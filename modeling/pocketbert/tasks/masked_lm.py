"""Masked LM: predict masked tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.core import Dense, LayerNorm, activate
from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.tasks.base import Task
from pocketbert.tasks.outputs import CrossEntropy, Labelled, uniform_cross_entropy


class MaskedLMHead(tf_keras.layers.Layer):
    """A transform and a LayerNorm (in every family), then the word embedding table as output matrix.

    MobileBERT's embedding table is narrower than its feature maps; a second table adds the missing columns.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        width = config.hidden_size if config.trigram else config.embedding_size
        has_biases = not family_of(config.model_type).has_prediction_layers
        self.transform = Dense(config.hidden_size, width, bias=has_biases)
        self.norm = LayerNorm(width, config.layer_norm_eps, beta=has_biases)
        self.bias = self.add_weight("bias", [config.vocab_size], initializer="zeros")
        if config.trigram and config.hidden_size > config.embedding_size:
            missing = config.hidden_size - config.embedding_size
            self.extra_table = self.add_weight("extra_table", [config.vocab_size, missing], initializer="zeros")
        self._activation = config.activation

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to logits, float32 [B, S, V] or [B, P, V].

        Args:
          encoded: `sequence_output` [B, S, H], `word_table` [V, E], and optionally `masked_lm_positions` int32 [B, P],
            the only positions to score.
          training: unused; all heads take it.
        """
        x = encoded["sequence_output"]
        if "masked_lm_positions" in encoded:
            x = tf.gather(x, encoded["masked_lm_positions"], batch_dims=1)
        x = self.norm(activate(self.transform(x), self._activation))
        table = tf.cast(encoded["word_table"], x.dtype)
        if hasattr(self, "extra_table"):
            table = tf.concat([table, self.extra_table], axis=1)
        return tf.cast(tf.einsum("bsh,vh->bsv", x, table), tf.float32) + tf.cast(self.bias, tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`prediction_logits`, float32 [B, S, V] or [B, P, V]."""
        return {"prediction_logits": self(encoded, training=training)}

    def learned(self, labelled: Mapping[str, Labelled], inputs: Mapping[str, tf.Tensor]) -> dict[str, Labelled]:
        """Keeps only the positions with a label, as a list."""
        return only_labelled(labelled)

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against token ids [B, S] or [B, P], in nats per token; negative labels are ignored."""
        return {"prediction_logits": CrossEntropy("token ids")}


class MaskedLM(Task):
    """Predicts masked tokens (Devlin et al. 2019, section 3.1, task 1, https://arxiv.org/abs/1810.04805)."""

    kind = "masked_lm"
    output_names = ("prediction_logits",)
    exportable = False

    def head(self, encoder: EncoderConfig) -> MaskedLMHead:
        """Returns a head with logits for the whole vocabulary."""
        return MaskedLMHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean cross-entropy over masked tokens, in nats. Labels are token ids, int32 [B, P]; negative: no label."""
        labels, logits = _rows(outputs["prediction_logits"], labels)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        return masked_mean(losses, is_labelled(labels))

    def uniform_loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """See `Task.uniform_loss`; all tokens have equal probabilities."""
        labels, logits = _rows(outputs["prediction_logits"], labels)
        return masked_mean(uniform_cross_entropy(logits), is_labelled(labels))


def _rows(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Labels and logits, one row per position.

    For other ranks TensorFlow checks sizes at run time. Graphs never prune such checks, so counting weights would run
    the student.
    """
    return tf.reshape(labels, [-1]), tf.reshape(tf.cast(logits, tf.float32), [-1, logits.shape[-1]])


def only_labelled(labelled: Mapping[str, Labelled], counted: tf.Tensor | None = None) -> dict[str, Labelled]:
    """Keeps one output's positions with a label, as a list; or the examples marked in `counted`, [B].

    Keras weights a batch by its rows. With one row per label, `evaluate` gives the mean over labels for every batch
    size. Keras averages the replicas' means; scaling the gradient makes it the gradient of the mean over all labels.
    """
    ((name, (logits, labels, weights)),) = labelled.items()
    counted = is_labelled(labels) if counted is None else counted
    if weights is not None:
        # Weights are per example or per position.
        weights = tf.reshape(weights, [tf.shape(labels)[0], -1])
        weights = weights[:, 0] if counted.shape.rank == 1 else tf.broadcast_to(weights, tf.shape(counted))
        weights = tf.boolean_mask(weights, counted)
    logits = _with_gradient_times(_share_of_replicas(counted), tf.boolean_mask(logits, counted))
    return {name: Labelled(logits, tf.boolean_mask(labels, counted), weights)}


def is_labelled(labels: tf.Tensor) -> tf.Tensor:
    """Whether labels are at least 0, bool in their shape; -1 (`pocketbert.data`) and -100 (transformers) mean none."""
    return labels >= 0


def _share_of_replicas(counted: tf.Tensor) -> tf.Tensor:
    """This replica's number of labels, divided by the mean over replicas."""
    count = tf.reduce_sum(tf.cast(counted, tf.float32))
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tf.constant(1.0)
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    return tf.math.divide_no_nan(count * context.num_replicas_in_sync, total)


@tf.custom_gradient
def _with_gradient_times(factor: tf.Tensor, x: tf.Tensor) -> Any:
    return tf.identity(x), lambda upstream: (None, upstream * tf.cast(factor, upstream.dtype))
