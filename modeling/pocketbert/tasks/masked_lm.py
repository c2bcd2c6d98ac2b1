"""BERT's two pretraining tasks: masked words and next sentence."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.linear import Linear, activate
from pocketbert.layers.norm import LayerNorm

# Marks a masked position that a batch is filled up with.
IGNORED_LABEL = -1


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
        self.transform = Linear(config.hidden_size, width)
        self.norm = LayerNorm(width, config.norm_epsilon)
        self.bias = self.add_weight("bias", [config.vocab_size], initializer="zeros")
        if config.trigram and config.hidden_size > config.embedding_size:
            missing = config.hidden_size - config.embedding_size
            self.extra_table = self.add_weight("extra_table", [config.vocab_size, missing], initializer="zeros")
        # An identity-norm encoder is a lowered MobileBERT, whose activation stays.
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

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against word ids [B, S] or [B, P], in nats a word; `IGNORED_LABEL` does not count."""
        return {"prediction_logits": MaskedCrossEntropy()}


class NextSentenceHead(tf_keras.layers.Layer):
    """Whether the second text follows the first (0) or not (1).

    Args:
      config: the encoder's architecture; it needs a pooler.
      task: a next-sentence task.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        self.output_map = Linear(config.hidden_size, 2)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 logits [B, 2]."""
        return tf.cast(self.output_map(encoded["pooled_output"]), tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`seq_relationship_logits`, float32 [B, 2]."""
        return {"seq_relationship_logits": self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against 0 or 1, in nats."""
        return {"seq_relationship_logits": tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)}


class MaskedCrossEntropy(tf_keras.losses.Loss):
    """Mean cross-entropy over the positions whose label is not `IGNORED_LABEL`."""

    def __init__(self) -> None:
        super().__init__(reduction=tf_keras.losses.Reduction.SUM)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Scalar: the mean in nats; 0 for a batch without labels."""
        counted = tf.cast(tf.not_equal(y_true, IGNORED_LABEL), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(y_true, 0), y_pred)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * counted), tf.reduce_sum(counted))
