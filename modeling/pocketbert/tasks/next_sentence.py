"""Next sentence: whether the second text follows the first."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.core import Dense
from pocketbert.tasks.base import Task
from pocketbert.tasks.outputs import CrossEntropy, mean_over_examples


class NextSentenceHead(tf_keras.layers.Layer):
    """Logits for "the second text follows the first" (0) and "it does not" (1); the encoder needs a pooler."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        self.output_projection = Dense(config.hidden_size, 2)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 logits [B, 2]."""
        return tf.cast(self.output_projection(encoded["pooled_output"]), tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`seq_relationship_logits`, float32 [B, 2]."""
        return {"seq_relationship_logits": self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against 0 or 1, in nats."""
        return {"seq_relationship_logits": CrossEntropy()}


class NextSentence(Task):
    """Whether the second text follows the first (Devlin et al. 2019, section 3.1, task 2)."""

    kind = "next_sentence"
    output_names = ("seq_relationship_logits",)
    needs_pooler = True
    first_token_only = True

    def head(self, encoder: EncoderConfig) -> NextSentenceHead:
        """Returns a head with two logits: follows, does not follow."""
        return NextSentenceHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean cross-entropy over examples, in nats. Labels are 0 (follows) or 1 (random text), int32 [B]."""
        logits = tf.cast(outputs["seq_relationship_logits"], tf.float32)
        return mean_over_examples(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits), labels, weights)
