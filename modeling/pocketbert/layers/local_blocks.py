"""Blocks of a text for local attention: each block of window / 2 tokens sees itself and its two neighbours.

A token's window reaches window / 2 tokens to each side, so three blocks hold it. The products take S · 1.5 windows
instead of S² (as in Longformer, Beltagy et al. 2020, section 3.1, with blocks of half the size).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class LocalBlocks:
    """Splits texts of one length into blocks.

    Where a text is at most 1.5 windows long, it is one block without neighbours. An int length decides so when the
    graph is made, a tensor when it runs. Shapes: B batch, S length, M blocks, K tokens that a block sees, W features.

    Args:
      length: S, an int or an int32 scalar.
      window: the layer's window in tokens.
    Attributes:
      pay: whether there are several blocks; true if only the running graph can tell.
    """

    def __init__(self, length: Any, window: int) -> None:
        half = window // 2
        is_long = length > 3 * half
        choose = (lambda one, other: one if is_long else other) if isinstance(length, int) else _choose(is_long)
        self.length, self._half = length, half
        self.pay = is_long is not False
        self._size, self._neighbours = choose(half, length), choose(1, 0)
        self._reach = self._neighbours * self._size
        self._count = -(-length // self._size)

    def rows(self, x: tf.Tensor) -> tf.Tensor:
        """[B, S, W] → [B · M, S / M, W]."""
        padded = tf.pad(x, [[0, 0], [0, self._missing], [0, 0]])
        return tf.reshape(padded, [tf.shape(x)[0] * self._count, self._size, x.shape[2]])

    def with_neighbours(self, x: tf.Tensor) -> tf.Tensor:
        """[B, S, W] → [B · M, K, W]; there are zeros before the first and after the last token."""
        batch, count, neighbours, reach = tf.shape(x)[0], self._count, self._neighbours, self._reach
        padded = tf.pad(x, [[0, 0], [reach, reach + self._missing], [0, 0]])
        blocks = tf.reshape(padded, [batch, count + 2 * neighbours, self._size, x.shape[2]])
        parts = [
            blocks[:, :count, :reach],
            blocks[:, neighbours : neighbours + count],
            blocks[:, 2 * neighbours :, :reach],
        ]
        return tf.reshape(tf.concat(parts, axis=2), [batch * count, self._size + 2 * reach, x.shape[2]])

    def joined(self, x: tf.Tensor) -> tf.Tensor:
        """[B · M, S / M, W] → [B, S, W]."""
        shape = tf.shape(x)
        return tf.reshape(x, [shape[0] // self._count, self._count * self._size, x.shape[2]])[:, : self.length]

    def mask_bias(self, mask_bias: tf.Tensor, padding_bias: float) -> tf.Tensor:
        """[B, 1, 1, S] → [B · M, 1, S / M, K]: the text's mask and each token's window."""
        # Padding adds zeros, which here must not be tokens.
        tokens = self.with_neighbours(mask_bias[:, 0, 0, :, tf.newaxis] - padding_bias) + padding_bias
        distances = tf.abs(tf.range(self._size)[:, tf.newaxis] - tf.range(-self._reach, self._size + self._reach))
        far = tf.constant(padding_bias, mask_bias.dtype)
        window = tf.where(distances <= self._half, tf.zeros_like(far), far)
        return tf.minimum(tokens[:, tf.newaxis, tf.newaxis, :, 0], window)

    @property
    def _missing(self) -> Any:
        return self._count * self._size - self.length


def _choose(condition: tf.Tensor) -> Any:
    return lambda one, other: tf.where(condition, one, other)
