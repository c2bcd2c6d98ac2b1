"""The linear maps between the feature maps and the inside of a block (MobileBERT, section 3.1)."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.layers.dense import Dense
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.norm import make_norm


class Bottleneck(tf_keras.layers.Layer):
    """Maps into a block and out of it; the block applies the input maps itself, to fuse them with others.

    Args:
      config: the encoder's architecture, with a bottleneck.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        assert config.bottleneck is not None
        size = config.bottleneck.size
        self.input_projection = Dense(config.hidden_size, size)
        self.input_norm = make_norm(config.norm, size, config.layer_norm_eps)
        if config.bottleneck.query_key == "shared":
            self.query_key = Dense(config.hidden_size, size)
            self.query_key_norm = make_norm(config.norm, size, config.layer_norm_eps)
        self.output_projection = Dense(size, config.hidden_size)
        self.output_norm = make_norm(config.norm, config.hidden_size, config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout)

    def call(self, x: tf.Tensor, residual: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps a block's inside [B, S, size] out and adds the block's input [B, S, hidden_size]."""
        return self.output_norm(self.dropout(self.output_projection(x), training=training) + residual)
