"""The feed-forward network of a layer."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.layers.dense import Dense, activate
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.norm import make_norm


class FeedForward(tf_keras.layers.Layer):
    """Two linear maps with an activation between them, residual and norm.

    Args:
      config: the encoder's architecture.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.intermediate = Dense(config.block_size, config.intermediate_size)
        self.output_projection = Dense(config.intermediate_size, config.block_size)
        self.norm = make_norm(config.norm, config.block_size, config.layer_norm_eps)
        # Inside a bottleneck the authors apply no dropout to sub-layers.
        self.dropout = Dropout(0.0 if config.bottleneck else config.hidden_dropout)
        self._activation = config.activation

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps [B, S, block_size] to the same shape."""
        inner = activate(self.intermediate(x), self._activation)
        return self.norm(self.dropout(self.output_projection(inner), training=training) + x)
