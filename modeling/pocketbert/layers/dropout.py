"""The only dropout: its random state is a tracked variable, so that a resumed run repeats itself to the bit."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras

# Draws have 16 bits: a rate is met to within 2^-17, and the scale uses the rate that is really met.
_LEVELS = 1 << 16


class Dropout(tf_keras.layers.Layer):
    """Sets a share of its input to zero in training and scales up the rest (Srivastava et al. 2014).

    Keras' own layer does not restore its random state from a checkpoint. Here a `tf.random.Generator`, saved
    with the model, seeds a stateless draw. One 32-bit draw decides two elements, since drawing is what
    dropout costs.

    Args:
      rate: share of zeros, in [0, 1).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._threshold = round(rate * _LEVELS)
        self.generator = tf.random.Generator.from_seed(0, alg="philox") if self._threshold else None

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps [...] to the same shape; without `training` or with rate 0 it is its input."""
        if not training or self.generator is None:
            return x
        seed = self.generator.make_seeds(1)[:, 0]
        size = tf.size(x)
        draws = tf.random.stateless_uniform([(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32)
        levels = tf.reshape(tf.bitcast(draws, tf.uint16), [-1])[:size]
        kept = tf.reshape(tf.cast(levels, tf.int32) >= self._threshold, tf.shape(x))
        scale = tf.cast(_LEVELS / (_LEVELS - self._threshold), x.dtype)
        return x * (tf.cast(kept, x.dtype) * scale)


def dropout_generators(module: tf.Module) -> list[tf.random.Generator]:
    """The random states of every dropout inside `module`, in an order that its structure alone decides."""
    parts = [part for part in module.submodules if isinstance(part, Dropout)]
    return [part.generator for part in parts if part.generator is not None]
