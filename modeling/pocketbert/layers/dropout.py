"""The only dropout layer. Its random state is a tracked variable, so a resumed run is bit-identical."""

from __future__ import annotations

import tensorflow as tf

from pocketbert._keras import tf_keras

# Draws have 16 bits, so the actual rate is within 2^-17 of the requested one. The scale uses the actual rate.
_LEVELS = 1 << 16


class Dropout(tf_keras.layers.Layer):
    """Sets a fraction of the input to zero in training and scales up the rest (Srivastava et al. 2014).

    Keras' layer does not restore its random state from a checkpoint. Here a `tf.random.Generator`, saved with the
    model, seeds a stateless draw. One 32-bit draw serves two elements, since draws dominate dropout's cost.

    Args:
      rate: fraction of zeros, in [0, 1).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._threshold = round(rate * _LEVELS)
        # The seed of the next calls, if another layer has drawn it.
        self.seed: tf.Tensor | None = None
        self.generator = tf.random.Generator.from_seed(0, alg="philox") if self._threshold else None

    def draw_seed(self) -> tf.Tensor:
        """Draws the next seed, int64 [2], in a layer with a positive rate."""
        assert self.generator is not None
        return self.generator.make_seeds(1)[:, 0]

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps [...] to the same shape. Returns the input if not `training` or if the rate is 0."""
        if not training or self.generator is None:
            return x
        seed = self.seed if self.seed is not None else self.draw_seed()
        size = tf.size(x)
        draws = tf.random.stateless_uniform([(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32)
        levels = tf.reshape(tf.bitcast(draws, tf.uint16), [-1])[:size]
        mask = tf.reshape(tf.cast(levels, tf.int32) >= self._threshold, tf.shape(x))
        scale = tf.cast(_LEVELS / (_LEVELS - self._threshold), x.dtype)
        return x * (tf.cast(mask, x.dtype) * scale)


def dropout_generators(module: tf.Module) -> list[tf.random.Generator]:
    """Returns all dropout layers' random states in `module`, in an order that depends only on its structure."""
    parts = [part for part in module.submodules if isinstance(part, Dropout)]
    return [part.generator for part in parts if part.generator is not None]
