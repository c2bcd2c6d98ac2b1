"""Quantization-aware training: layers round as the exported file does, and gradients pass straight through.

After Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
section 3. Departures:

- Ranges of activations come from each batch instead of moving averages, so a run has no state beyond its weights.
- Biases are not rounded.
- The converter may move the gamma of a LayerNorm into the layers that read it, and export folds NoNorm. The weights of
  these layers are then rounded in other steps than here.

Only matrices from `FEWEST_ROUNDED` elements on are rounded, like in the exported file.
"""

from __future__ import annotations

import abc
from typing import Literal

import numpy as np
import tensorflow as tf

FakeFormat = Literal["dynamic_wi8", "dynamic_wi4", "static_wi8_ai8"]
FEWEST_ROUNDED = 1024
# As in pocketbert_export.block_rounding: block size, and scales to try relative to the one that reaches the maximum.
INT4_BLOCK = 32
INT4_SHARES = np.linspace(0.7, 1.1, 17)
_SMALLEST = 1e-7


class FakeQuantization(abc.ABC):
    """Rounds the weights and activations of a layer."""

    @abc.abstractmethod
    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        """Rounds a dense layer's weights [inputs, outputs]."""

    @abc.abstractmethod
    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Rounds rows [..., width] of an embedding table [vocabulary, width]."""

    @abc.abstractmethod
    def inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Rounds a dense layer's inputs [..., width]."""

    def outputs(self, y: tf.Tensor) -> tf.Tensor:
        """Rounds a dense layer's outputs [..., width]."""
        return y


class DynamicInt8(FakeQuantization):
    """`dynamic_wi8`: weights per output channel, the table per tensor, activations per token."""

    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return _symmetric(kernel, tf.reduce_max(tf.abs(kernel), axis=0, keepdims=True))

    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return _symmetric(rows, tf.reduce_max(tf.abs(table)))

    def inputs(self, x: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return _asymmetric(x, axes=[-1])


class DynamicInt4(DynamicInt8):
    """`dynamic_wi4`: weights in blocks of 32 along the inputs, activations per token in int8."""

    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return tf.transpose(round_blocks(tf.transpose(kernel)))

    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return round_blocks(rows)


class StaticInt8(DynamicInt8):
    """`static_wi8_ai8`: weights per output channel, activations per tensor."""

    def inputs(self, x: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return _asymmetric(x, axes=None)

    def outputs(self, y: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`."""
        return _asymmetric(y, axes=None)


FORMATS: dict[FakeFormat, FakeQuantization] = {
    "dynamic_wi8": DynamicInt8(),
    "dynamic_wi4": DynamicInt4(),
    "static_wi8_ai8": StaticInt8(),
}


def _straight_through(x: tf.Tensor, rounded: tf.Tensor) -> tf.Tensor:
    return x + tf.stop_gradient(rounded - x)


def _symmetric(x: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """Rounds to int8 from -127 to 127."""
    scale = tf.maximum(largest, _SMALLEST) / 127
    return _straight_through(x, tf.round(x / scale) * scale)


def _asymmetric(x: tf.Tensor, axes: list[int] | None) -> tf.Tensor:
    """Rounds to 256 values between minimum and maximum over `axes`; 0 is one of them."""
    low = tf.minimum(tf.reduce_min(x, axis=axes, keepdims=True), 0)
    high = tf.maximum(tf.reduce_max(x, axis=axes, keepdims=True), 0)
    scale = tf.maximum(high - low, _SMALLEST) / 255
    zero = tf.round(-low / scale)
    return _straight_through(x, (tf.clip_by_value(tf.round(x / scale) + zero, 0, 255) - zero) * scale)


def round_blocks(rows: tf.Tensor) -> tf.Tensor:
    """Rounds rows [..., width] to int4 in blocks along the width, each with the scale of least squared error."""
    width = rows.shape[-1]
    blocks = tf.reshape(tf.pad(tf.reshape(rows, [-1, width]), [[0, 0], [0, -width % INT4_BLOCK]]), [-1, INT4_BLOCK])
    largest = tf.maximum(tf.reduce_max(tf.abs(blocks), axis=1, keepdims=True), _SMALLEST)
    best, found = tf.fill(tf.shape(largest), tf.float32.max), tf.zeros_like(blocks)
    for share in INT4_SHARES:
        # Stored scales are float16.
        scale = tf.cast(tf.cast(tf.maximum(share * largest / 7, _SMALLEST), tf.float16), tf.float32)
        rounded = tf.clip_by_value(tf.round(blocks / scale), -8, 7) * scale
        error = tf.reduce_sum(tf.square(rounded - blocks), axis=1, keepdims=True)
        found = tf.where(error < best, rounded, found)
        best = tf.minimum(error, best)
    padded = tf.reshape(found, [-1, -(-width // INT4_BLOCK) * INT4_BLOCK])
    return _straight_through(rows, tf.reshape(padded[:, :width], tf.shape(rows)))
