"""Normalization after a residual sum: layer normalization, or MobileBERT's NoNorm."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import Norm


class LayerNorm(tf_keras.layers.Layer):
    """Layer normalization over the last axis (Ba et al. 2016), computed in float32.

    Args:
      size: features.
      epsilon: added to the variance.
    """

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.gamma = self.add_weight("gamma", [size], initializer="ones")
        self.beta = self.add_weight("beta", [size], initializer="zeros")
        self._epsilon = epsilon

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., size] to the same shape."""
        wide = tf.cast(x, tf.float32)
        centered = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        normalized = tf.cast(centered * tf.math.rsqrt(variance + self._epsilon), x.dtype)
        return normalized * self.gamma + self.beta


class NoNorm(tf_keras.layers.Layer):
    """gamma ∘ h + beta (MobileBERT, eq. 1).

    Args:
      size: features.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = self.add_weight("gamma", [size], initializer="ones")
        self.beta = self.add_weight("beta", [size], initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., size] to the same shape."""
        return x * self.gamma + self.beta


class Identity(tf_keras.layers.Layer):
    """Nothing: a NoNorm that export has folded into the linear maps around it."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns its input."""
        return x


def make_norm(norm: Norm, size: int, epsilon: float) -> tf_keras.layers.Layer:
    """The norm layer that a configuration names."""
    if norm == "layer_norm":
        return LayerNorm(size, epsilon)
    return NoNorm(size) if norm == "no_norm" else Identity()
