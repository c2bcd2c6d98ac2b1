"""Layers that some families put before the last map of every head."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import EncoderConfig
from pocketbert.layers.core import Dense, LayerNorm, activate


class PredictionLayers(tf_keras.layers.Layer):
    """Base class for heads: a linear map without bias, gelu and a norm for ModernBERT, nothing for other families.

    Args:
      config: the encoder's architecture.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self._has_prediction_layers = family_of(config.model_type).has_prediction_layers
        if self._has_prediction_layers:
            self.dense = Dense(config.hidden_size, config.hidden_size, bias=False)
            self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps, beta=False)

    def predicted(self, x: tf.Tensor) -> tf.Tensor:
        """What the last map reads, for features [..., H], in the same shape."""
        return self.norm(activate(self.dense(x), "gelu")) if self._has_prediction_layers else x
