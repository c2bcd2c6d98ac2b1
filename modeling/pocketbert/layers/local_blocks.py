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
    graph is made, a tensor when it runs. Shapes: B batch, N heads, S length, M blocks, K tokens that a block sees, D
    features.

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
        """[B, N, S, D] → [B, N · M, S / M, D]."""
        _, heads, _, width = x.shape
        padded = tf.pad(x, [[0, 0], [0, 0], [0, self._missing], [0, 0]])
        return tf.reshape(padded, [tf.shape(x)[0], heads * self._count, self._size, width])

    def with_neighbours(self, x: tf.Tensor) -> tf.Tensor:
        """[B, N, S, D] → [B, N · M, K, D]; there are zeros before the first and after the last token."""
        batch, count, neighbours, reach = tf.shape(x)[0], self._count, self._neighbours, self._reach
        _, heads, _, width = x.shape
        padded = tf.pad(x, [[0, 0], [0, 0], [reach, reach + self._missing], [0, 0]])
        blocks = tf.reshape(padded, [batch, heads, count + 2 * neighbours, self._size, width])
        parts = [
            blocks[:, :, :count, :reach],
            blocks[:, :, neighbours : neighbours + count],
            blocks[:, :, 2 * neighbours :, :reach],
        ]
        return tf.reshape(tf.concat(parts, axis=3), [batch, heads * count, self._size + 2 * reach, width])

    def joined(self, x: tf.Tensor, heads: int) -> tf.Tensor:
        """[B, N · M, S / M, D] → [B, N, S, D]."""
        return tf.reshape(x, [tf.shape(x)[0], heads, self._count * self._size, x.shape[3]])[:, :, : self.length]

    def masked(self, logits: tf.Tensor, mask_bias: tf.Tensor) -> tf.Tensor:
        """Adds a mask from `mask_bias` to logits [B, N · M, S / M, K]."""
        shape = tf.shape(logits)
        by_head = tf.reshape(logits, [shape[0], -1, self._count, self._size, self._size + 2 * self._reach])
        return tf.reshape(by_head + mask_bias, shape)

    def mask_bias(self, mask_bias: tf.Tensor, padding_bias: float) -> tf.Tensor:
        """[B, 1, 1, S] → [B, 1, M, S / M, K]: the text's mask and each token's window."""
        # Padding adds zeros, which here must not be tokens.
        column = tf.transpose(mask_bias, [0, 1, 3, 2])
        tokens = self.with_neighbours(column - padding_bias) + padding_bias
        distances = tf.abs(tf.range(self._size)[:, tf.newaxis] - tf.range(-self._reach, self._size + self._reach))
        far = tf.constant(padding_bias, mask_bias.dtype)
        window = tf.where(distances <= self._half, tf.zeros_like(far), far)
        # A file's slices have at most five axes, new ones included.
        seen = self._size + 2 * self._reach
        return tf.minimum(tf.reshape(tokens, [tf.shape(mask_bias)[0], 1, self._count, 1, seen]), window)

    @property
    def _missing(self) -> Any:
        return self._count * self._size - self.length


def _choose(condition: tf.Tensor) -> Any:
    return lambda one, other: tf.where(condition, one, other)
