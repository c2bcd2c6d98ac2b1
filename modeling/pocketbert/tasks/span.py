"""Span: where an answer starts and ends."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.linear import Linear


class SpanHead(tf_keras.layers.Layer):
    """Start and end logits of every token.

    Args:
      config: the encoder's architecture.
      task: a span task.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        self.output_map = Linear(config.hidden_size, 2)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 [B, S, 2]."""
        return tf.cast(self.output_map(encoded["sequence_output"]), tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`start_logits` and `end_logits`, float32 [B, S]."""
        start, end = tf.unstack(self(encoded, training=training), axis=-1)
        return {"start_logits": start, "end_logits": end}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against token positions [B], in nats."""
        return {
            name: tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            for name in ("start_logits", "end_logits")
        }
