"""Quantization-aware training: layers round as the exported file does, and gradients pass straight through.

After Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
section 3. Departures:

- Static activation ranges come from each batch instead of moving averages, so a run has no state beyond its weights.
  They include padding. Export calibrates.
- Biases are not rounded.
- `static_wi8_ai8`: export also equalizes GELU's outputs.
- `dynamic_wi4`: a third of the blocks has smaller int4 blocks; in the file, a third of the dense layers.
- NoNorm: export folds it. The file's sums then have other scales per channel than here, and dense layers that export
  fuses share a range.

Layers behind a norm round as in the file, which moves the norm's gamma and beta into them; see `Dense.reads`.
`pocketbert.training.rounding` connects the layers.
"""

from __future__ import annotations

import pkgutil
from typing import Literal

import numpy as np
import tensorflow as tf

from pocketbert.recipes import RECIPES

# A dense layer's reader in `static_wi8_ai8_full`: an operator in float or int8, or a matrix product's second factor.
# A relu is fused with the layer.
Reader = Literal["float", "int8", "second factor", "relu"]
# As in pocketbert_export.quantization.int4_quantization: sizes of blocks; the smaller one pads.
_SMALL_BLOCK, _LARGE_BLOCK = 32, 64
# As in pocketbert_export.quantization.block_rounding: scales to try relative to the one that reaches the maximum.
INT4_SHARES = np.linspace(0.7, 1.1, 17)
# As in pocketbert_export.quantization.equalization and static_operators.
_UNEQUAL = 4.0
_PADDING_MARGIN = 12.0
_SMALLEST = 1e-7


class FakeQuantization:
    """Rounds layers' weights and activations; this base class rounds nothing.

    Args:
      has_layer_norm: whether the network has LayerNorm, in which less is rounded.
    Attributes:
      fewest: smaller matrices stay exact, as in the exported file.
    """

    fewest = 1024

    def __init__(self, *, has_layer_norm: bool = True) -> None:
        self._has_layer_norm = has_layer_norm

    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        """Rounds a dense layer's weights [inputs, outputs]."""
        return kernel

    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Rounds rows [..., width] of an embedding table [vocabulary, width]."""
        return rows

    def inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Rounds a dense layer's inputs [..., width]."""
        return x

    def outputs(self, y: tf.Tensor, reader: Reader) -> tf.Tensor:
        """Rounds a dense layer's outputs [..., width]."""
        return y

    def masked(self, logits: tf.Tensor, mask_bias: tf.Tensor) -> tf.Tensor:
        """Adds the mask [B, 1, 1, S] to attention logits [B, N, T, S] and rounds both."""
        return logits + mask_bias

    def probabilities(self, probs: tf.Tensor) -> tf.Tensor:
        """Rounds attention probabilities [B, N, T, S]."""
        return probs

    def sums(self, x: tf.Tensor) -> tf.Tensor:
        """Rounds a residual connection's or the embeddings' sum [..., width]."""
        return x


EXACT = FakeQuantization()


class DynamicInt8(FakeQuantization):
    """`dynamic_wi8`: weights per output channel, the table per tensor, activations per token."""

    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        return _symmetric(kernel, tf.reduce_max(tf.abs(kernel), axis=0, keepdims=True))

    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return _symmetric(rows, tf.reduce_max(tf.abs(table)))

    def inputs(self, x: tf.Tensor) -> tf.Tensor:
        return _asymmetric(x, axes=[-1])


class DynamicInt4(DynamicInt8):
    """`dynamic_wi4`: weights in blocks along the inputs, activations per token in int8.

    Args:
      has_layer_norm: see `FakeQuantization`.
      small_blocks: use the smaller block size, as in the file's first layers.
    """

    def __init__(self, *, has_layer_norm: bool = True, small_blocks: bool = False) -> None:
        super().__init__(has_layer_norm=has_layer_norm)
        self._small_blocks = small_blocks

    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        padded = -(-kernel.shape[0] // _SMALL_BLOCK) * _SMALL_BLOCK
        is_small = self._small_blocks or padded % _LARGE_BLOCK
        return tf.transpose(round_blocks(tf.transpose(kernel), _SMALL_BLOCK if is_small else _LARGE_BLOCK))

    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return round_blocks(rows, _SMALL_BLOCK)


class StaticInt8(DynamicInt8):
    """`static_wi8_ai8`: weights per output channel, activations per tensor, unequal outputs equalized."""

    def rows(self, table: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """See `FakeQuantization`; a looked-up row has the range of its table."""
        return _between(rows, tf.minimum(tf.reduce_min(table), 0), tf.maximum(tf.reduce_max(table), 0))

    def inputs(self, x: tf.Tensor) -> tf.Tensor:
        return _asymmetric(x)

    def outputs(self, y: tf.Tensor, reader: Reader) -> tf.Tensor:
        # A second relu changes nothing.
        y = tf.nn.relu(y) if reader == "relu" else y
        factors, _ = equalization(y)
        return _asymmetric(y / factors) * factors


class FullInt8(StaticInt8):
    """`static_wi8_ai8_full`: like `static_wi8_ai8`, with every operator and matrices of any size in int8.

    Networks with LayerNorm keep sums in float.
    """

    fewest = 0

    def outputs(self, y: tf.Tensor, reader: Reader) -> tf.Tensor:
        if reader == "relu" or (reader == "float" and self._has_layer_norm):
            return super().outputs(y, reader)
        # The multiplication behind an equalized layer has outputs with one range.
        factors, is_unequal = equalization(y)
        equalized = _asymmetric(y / factors) * factors
        if reader == "second factor":
            y = tf.where(is_unequal, equalized, y)
            # 255 values around 0, as XNNPACK needs them for a matrix product's second factor.
            return _symmetric(y, tf.reduce_max(tf.abs(y)))
        return tf.where(is_unequal, _asymmetric(equalized), equalized)

    def masked(self, logits: tf.Tensor, mask_bias: tf.Tensor) -> tf.Tensor:
        is_token = mask_bias >= 0
        token_logits = tf.stop_gradient(tf.where(is_token, logits, 0))
        low, high = tf.minimum(tf.reduce_min(token_logits), 0), tf.maximum(tf.reduce_max(token_logits), 0)
        rounded = _between(logits, low, high)
        lowest = low - _PADDING_MARGIN
        return _between(tf.where(is_token, rounded, lowest), lowest, high)

    def probabilities(self, probs: tf.Tensor) -> tf.Tensor:
        return _straight_through(probs, tf.minimum(tf.round(probs * 256), 255) / 256)

    def sums(self, x: tf.Tensor) -> tf.Tensor:
        return x if self._has_layer_norm else _asymmetric(x)


def fake_quantization(recipe: str, *, has_layer_norm: bool = True) -> FakeQuantization:
    """Returns a recipe's rounding; networks without LayerNorm may round more."""
    rounding: FakeQuantization = pkgutil.resolve_name(RECIPES[recipe].rounding)(has_layer_norm=has_layer_norm)
    return rounding


def equalization(y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a power of two per channel in `y` [..., channels] for export's equalization, and whether it applies."""
    sizes = tf.stop_gradient(tf.reduce_max(tf.abs(y), axis=list(range(y.shape.rank - 1))))
    ordered = tf.sort(sizes, direction="DESCENDING")
    count = tf.maximum(tf.math.count_nonzero(sizes, dtype=tf.int32), 1)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    is_unequal = ordered[0] > _UNEQUAL * median
    shares = tf.where(sizes > 0, sizes / tf.maximum(ordered[0], _SMALLEST), 1.0)
    factors = tf.pow(2.0, tf.math.ceil(tf.math.log(shares) / np.log(2.0)))
    return tf.where(is_unequal, factors, 1.0), is_unequal


def _straight_through(x: tf.Tensor, rounded: tf.Tensor) -> tf.Tensor:
    return x + tf.stop_gradient(rounded - x)


def _symmetric(x: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """Rounds to int8 from -127 to 127."""
    scale = tf.maximum(largest, _SMALLEST) / 127
    return _straight_through(x, tf.round(x / scale) * scale)


def _asymmetric(x: tf.Tensor, axes: list[int] | None = None) -> tf.Tensor:
    """Rounds to 256 values between minimum and maximum over `axes`; 0 is one of them."""
    low = tf.minimum(tf.reduce_min(x, axis=axes, keepdims=True), 0)
    high = tf.maximum(tf.reduce_max(x, axis=axes, keepdims=True), 0)
    return _between(x, low, high)


def _between(x: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Rounds to 256 values between limits that include 0."""
    scale = tf.maximum(high - low, _SMALLEST) / 255
    zero = tf.round(-low / scale)
    return _straight_through(x, (tf.clip_by_value(tf.round(x / scale) + zero, 0, 255) - zero) * scale)


def round_blocks(rows: tf.Tensor, size: int) -> tf.Tensor:
    """Rounds rows [..., width] to int4 in blocks of `size`, each with the scale for the least squared error."""
    width = rows.shape[-1]
    blocks = tf.reshape(tf.pad(tf.reshape(rows, [-1, width]), [[0, 0], [0, -width % size]]), [-1, size])
    largest = tf.maximum(tf.reduce_max(tf.abs(blocks), axis=1, keepdims=True), _SMALLEST)
    best, best_blocks = tf.fill(tf.shape(largest), tf.float32.max), tf.zeros_like(blocks)
    for share in INT4_SHARES:
        # Stored scales are float16.
        scale = tf.cast(tf.cast(tf.maximum(share * largest / 7, _SMALLEST), tf.float16), tf.float32)
        rounded = tf.clip_by_value(tf.round(blocks / scale), -8, 7) * scale
        error = tf.reduce_sum(tf.square(rounded - blocks), axis=1, keepdims=True)
        best_blocks = tf.where(error < best, rounded, best_blocks)
        best = tf.minimum(error, best)
    padded = tf.reshape(best_blocks, [-1, -(-width // size) * size])
    return _straight_through(rows, tf.reshape(padded[:, :width], tf.shape(rows)))
