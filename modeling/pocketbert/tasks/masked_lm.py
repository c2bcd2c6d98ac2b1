"""Masked LM: the words behind masked tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.core import Dense, LayerNorm, activate
from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.tasks.base import Task
from pocketbert.tasks.heads import CrossEntropy, Labelled


class MaskedLMHead(tf_keras.layers.Layer):
    """A transform, then the word table as output matrix.

    MobileBERT's table is narrower than its feature maps: a second table makes up the difference
    (factorized output). The norm is a LayerNorm whatever the encoder's norm is, as the authors have it.

    Args:
      config: the encoder's architecture.
      task: a masked-LM task.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        width = config.hidden_size if config.trigram else config.embedding_size
        self.transform = Dense(config.hidden_size, width)
        self.norm = LayerNorm(width, config.layer_norm_eps)
        self.bias = self.add_weight("bias", [config.vocab_size], initializer="zeros")
        if config.trigram and config.hidden_size > config.embedding_size:
            missing = config.hidden_size - config.embedding_size
            self.extra_table = self.add_weight("extra_table", [config.vocab_size, missing], initializer="zeros")
        # An identity-norm encoder is a optimized MobileBERT, whose activation stays.
        self._activation = config.activation

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to logits.

        Args:
          encoded: `sequence_output` [B, S, H], `word_table` [V, E] and, to score only those, `masked_lm_positions`
            int32 [B, P].
          training: unused; every head takes it.
        Returns:
          float32 [B, S, V], or [B, P, V].
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
        """What loss and metrics are taken of: the positions with a label, as a list of them.

        Keras counts a batch by its rows; with a row for each masked token, `evaluate` gives the mean over the words
        whatever the batch size. Keras takes the mean of the replicas' means; the gradient is made that of the mean
        over all their words.
        """
        ((name, (logits, labels, weights)),) = labelled.items()
        counted = is_labelled(labels)
        if weights is not None:
            # A weight is an example's or a position's.
            weights = tf.reshape(weights, [tf.shape(labels)[0], -1])
            weights = tf.boolean_mask(tf.broadcast_to(weights, tf.shape(labels)), counted)
        logits = _with_gradient_times(_share_of_replicas(counted), tf.boolean_mask(logits, counted))
        return {name: Labelled(logits, tf.boolean_mask(labels, counted), weights)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against word ids [B, S] or [B, P], in nats a word; negative labels do not count."""
        return {"prediction_logits": CrossEntropy("token ids")}


class MaskedLM(Task):
    """The words behind masked tokens (Devlin et al. 2019, section 3.1, task 1, https://arxiv.org/abs/1810.04805)."""

    kind = "masked_lm"
    output_names = ("prediction_logits",)
    exportable = False

    def head(self, encoder: EncoderConfig) -> MaskedLMHead:
        """Logits of the whole vocabulary."""
        return MaskedLMHead(encoder, self.config)

    def loss(
        self,
        outputs: Mapping[str, tf.Tensor],
        labels: tf.Tensor,
        mask: tf.Tensor,
        weights: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Cross-entropy against word ids, int32 [B, P]; negative labels do not count. Mean over masked tokens, nats."""
        logits = outputs["prediction_logits"]
        # One row a position. For other ranks TensorFlow's function checks sizes at run time, and a graph never leaves a
        # check out, so counting the weights would cost a pass through the student.
        labels = tf.reshape(labels, [-1])
        logits = tf.reshape(tf.cast(logits, tf.float32), [-1, logits.shape[-1]])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        return masked_mean(losses, is_labelled(labels))


def is_labelled(labels: tf.Tensor) -> tf.Tensor:
    """Which positions have a masked token: bool, of the labels' shape.

    A negative label marks one that has none: -1, as `data` writes it, or the -100 of transformers.
    """
    return labels >= 0


def _share_of_replicas(counted: tf.Tensor) -> tf.Tensor:
    """How many labels this replica has in relation to the mean of all replicas."""
    count = tf.reduce_sum(tf.cast(counted, tf.float32))
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tf.constant(1.0)
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    return tf.math.divide_no_nan(count * context.num_replicas_in_sync, total)


@tf.custom_gradient
def _with_gradient_times(factor: tf.Tensor, x: tf.Tensor) -> Any:
    return tf.identity(x), lambda upstream: (None, upstream * tf.cast(factor, upstream.dtype))
