"""Elementary layers (dense, embedding, norms), and their weights' names and initial values."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import Activation, Norm
from pocketbert.feedforward import WidthMismatch, aggregate
from pocketbert.layers.fake_quantization import EXACT, FakeQuantization, Reader


class RoundingLayer(tf_keras.layers.Layer):
    """A layer that can round for quantization-aware training."""

    _rounding: FakeQuantization = EXACT

    def round_like(self, rounding: FakeQuantization) -> None:
        """Rounds from now on; see `fake_quantization`."""
        self._rounding = rounding


class Dense(RoundingLayer):
    """y = x·kernel + bias on the last axis.

    Args:
      inputs: number of input features.
      outputs: number of output features.
      bias: whether there is a bias.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.kernel = self.add_weight("kernel", [inputs, outputs], initializer="zeros")
        self.bias: Any = self.add_weight("bias", [outputs], initializer="zeros") if bias else None
        self._norm: Callable[[], tuple[tf.Tensor, tf.Tensor]] | None = None
        self._reader: Reader = "float"

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., inputs] to [..., outputs]."""
        rounding, kernel, bias = self._rounding, self.kernel, self.bias
        if rounding is EXACT:
            return affine(x, kernel, bias)
        if self._norm is not None:
            gamma, beta = self._norm()
            moved = tf.linalg.matvec(kernel, beta, transpose_a=True)
            bias = moved if bias is None else bias + moved
            # A channel without gamma has no values.
            x = tf.math.divide_no_nan(x - beta, gamma)
            kernel = kernel * gamma[:, tf.newaxis]
        y = affine(rounding.inputs(x), rounding.kernel(kernel), bias)
        return rounding.outputs(y, self._reader)

    def round_like(self, rounding: FakeQuantization) -> None:
        if self.kernel.shape.num_elements() >= rounding.fewest:
            super().round_like(rounding)

    def reads(self, norm: LayerNorm | NoNorm) -> None:
        """Makes the layer round as behind a norm: export moves gamma and beta into it and rounds values before them."""
        # A function, because Keras tracks every layer that is an attribute.
        self._norm = lambda: (norm.gamma, norm.beta)

    def is_read_by(self, reader: Reader) -> None:
        """Sets the outputs' reader; float operators by default."""
        self._reader = reader


def project(pairs: Sequence[tuple[tf.Tensor, Dense | None]], *, fused: bool) -> list[tf.Tensor]:
    """Applies each dense layer to its input; returns the outputs in the order of `pairs`.

    Args:
      pairs: (input, layer); None returns the input.
      fused: compute layers with the same input tensor as one product with concatenated kernels.
    """
    if not fused:
        return [x if linear is None else linear(x) for x, linear in pairs]
    groups: dict[int, list[tuple[int, Dense]]] = {}
    outputs: dict[int, tf.Tensor] = {}
    for position, (x, linear) in enumerate(pairs):
        if linear is None:
            outputs[position] = x
        else:
            groups.setdefault(id(x), []).append((position, linear))
    for group in groups.values():
        positions, linears = zip(*group, strict=True)
        x = pairs[positions[0]][0]
        if len(linears) == 1:
            outputs[positions[0]] = linears[0](x)
            continue
        kernel = tf.concat([linear.kernel for linear in linears], axis=1)
        biases = [linear.bias for linear in linears]
        bias = None if biases[0] is None else tf.concat(biases, axis=0)
        parts = tf.split(affine(x, kernel, bias), [linear.kernel.shape[1] for linear in linears], axis=-1)
        outputs.update(zip(positions, parts, strict=True))
    return [outputs[position] for position in range(len(pairs))]


def activate(x: tf.Tensor, activation: Activation) -> tf.Tensor:
    """Applies an activation: `gelu` (erf), `gelu_tanh` or `relu`."""
    if activation == "relu":
        return tf.nn.relu(x)
    return tf.nn.gelu(x, approximate=activation == "gelu_tanh")


def feedforward_operations(mismatch: WidthMismatch) -> dict[str, Callable[..., tf.Tensor]]:
    """Returns the operations in feed-forward expressions (EfficientBERT, table 1); gelu is the tanh form.

    Args:
      mismatch: see `pocketbert.feedforward.aggregate`.
    """
    aggregations = {"add": tf.add, "mul": tf.multiply, "max": tf.maximum}
    concat = functools.partial(tf.concat, axis=-1)
    return {
        "gelu": functools.partial(tf.nn.gelu, approximate=True),
        "sigmoid": tf.sigmoid,
        "tanh": tf.tanh,
        "relu": tf.nn.relu,
        "leaky_relu": functools.partial(tf.nn.leaky_relu, alpha=0.01),
        "elu": tf.nn.elu,
        "swish": lambda x: x * tf.sigmoid(x),
        **{name: aggregate(operation, concat, mismatch) for name, operation in aggregations.items()},
    }


def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """x·kernel + bias on the last axis: maps [..., inputs] to [..., outputs]."""
    # CPU and TFLite kernels are fastest for one two-dimensional product.
    rows = tf.matmul(tf.reshape(x, [-1, kernel.shape[0]]), kernel)
    if bias is not None:
        rows = tf.nn.bias_add(rows, bias)
    return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], axis=0))


class Embedding(RoundingLayer):
    """A table of vectors.

    Args:
      rows: number of vectors.
      width: vector size.
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = self.add_weight("table", [rows, width], initializer="zeros")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Maps int32 [...] to [..., width]."""
        return self._rounding.rows(self.table, tf.gather(self.table, ids))

    def round_like(self, rounding: FakeQuantization) -> None:
        if self.table.shape.num_elements() >= rounding.fewest:
            super().round_like(rounding)


class LayerNorm(tf_keras.layers.Layer):
    """Layer normalization over the last axis (Ba et al. 2016), computed in float32.

    Args:
      size: number of features.
      epsilon: added to the variance.
      beta: whether there is a beta.
    """

    def __init__(self, size: int, epsilon: float, *, beta: bool = True) -> None:
        super().__init__()
        self.gamma = self.add_weight("gamma", [size], initializer="ones")
        self.beta: Any = self.add_weight("beta", [size], initializer="zeros") if beta else None
        self._epsilon = epsilon
        self._early = False

    def multiply_early(self) -> None:
        """Multiplies by gamma before the division from now on (`GraphForm.early_gamma`)."""
        self._early = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., size] to the same shape."""
        wide = tf.cast(x, tf.float32)
        centered = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
        # The converter turns a square into a slower SQUARED_DIFFERENCE.
        variance = tf.reduce_mean(centered * centered, axis=-1, keepdims=True)
        inverse = tf.math.rsqrt(variance + self._epsilon)
        if self._early:
            return tf.cast(centered * self.gamma * inverse, x.dtype) + self.beta
        scaled = tf.cast(centered * inverse, x.dtype) * self.gamma
        return scaled if self.beta is None else scaled + self.beta


class RootMeanSquareNorm(tf_keras.layers.Layer):
    """x / sqrt(mean(x²) + epsilon) over the last axis, computed in float32: a LayerNorm of centred features.

    Args:
      size: number of features.
      epsilon: added to the mean square.
      gamma: whether there is a gamma.
    """

    def __init__(self, size: int, epsilon: float, *, gamma: bool = False) -> None:
        super().__init__()
        self.gamma: Any = self.add_weight("gamma", [size], initializer="ones") if gamma else None
        self._epsilon = epsilon

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., size] to the same shape."""
        wide = tf.cast(x, tf.float32)
        mean_square = tf.reduce_mean(wide * wide, axis=-1, keepdims=True)
        normalized = tf.cast(wide * tf.math.rsqrt(mean_square + self._epsilon), x.dtype)
        return normalized if self.gamma is None else normalized * self.gamma


class NoNorm(tf_keras.layers.Layer):
    """gamma ∘ h + beta (MobileBERT, eq. 1)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = self.add_weight("gamma", [size], initializer="ones")
        self.beta = self.add_weight("beta", [size], initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., size] to the same shape."""
        return x * self.gamma + self.beta


class Identity(tf_keras.layers.Layer):
    """Replaces a NoNorm that export has folded into the dense layers around it."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the input."""
        return x


class ResidualScale(tf_keras.layers.Layer):
    """Multiplies a residual by a factor per feature, where a NoNorm could not be folded completely."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.factor = self.add_weight("factor", [size], initializer="ones")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., size] to the same shape."""
        return x * self.factor


def add_residual(x: tf.Tensor, residual: tf.Tensor, scale: ResidualScale | None) -> tf.Tensor:
    """Returns x + residual, or x + factor ∘ residual."""
    return x + (residual if scale is None else scale(residual))


def make_norm(norm: Norm, size: int, epsilon: float, *, beta: bool = True) -> tf_keras.layers.Layer:
    """Creates a configuration's norm layer; a LayerNorm can do without beta."""
    if norm == "layer_norm":
        return LayerNorm(size, epsilon, beta=beta)
    if norm == "rms":
        return RootMeanSquareNorm(size, epsilon)
    return NoNorm(size) if norm == "no_norm" else Identity()


def weights_by_path(layer: tf_keras.layers.Layer) -> dict[str, tf.Variable]:
    """Maps attribute paths, such as `layers.0.attention.query.kernel`, to weights, in construction order.

    Keras' variable names depend on the construction order, so they are not used as keys. List items are named by index.
    `input_projection`, `output_projection` and `layers_` become `input`, `output` and `layers`, which Keras reserves as
    attributes.

    Args:
      layer: a layer from this package, or one composed of such layers.
    """
    return dict(_walk(layer, ""))


def initialize_weights(layer: tf_keras.layers.Layer, standard_deviation: float, seed: int) -> None:
    """Initializes kernels and tables with truncated-normal values that depend only on path and seed.

    One-dimensional weights, such as biases and norms, stay unchanged.

    Args:
      layer: the layer to initialize.
      standard_deviation: standard deviation before truncation at two standard deviations.
      seed: the model's seed.
    """
    for path, variable in weights_by_path(layer).items():
        if variable.shape.rank < 2:
            continue
        draw = tf.random.stateless_truncated_normal(
            variable.shape, seed=(seed, zlib.crc32(path.encode()) & 0x7FFFFFFF), stddev=standard_deviation
        )
        variable.assign(draw)


def _walk(value: Any, prefix: str) -> Iterator[tuple[str, tf.Variable]]:
    if isinstance(value, tf.Variable):
        yield prefix, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{prefix}.{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{prefix}.{key}")
    elif isinstance(value, tf_keras.layers.Layer):
        for name, child in vars(value).items():
            if not name.startswith("_"):
                yield from _walk(child, f"{prefix}.{_path_name(name)}" if prefix else _path_name(name))


def _path_name(attribute: str) -> str:
    return attribute.removesuffix("_projection").removesuffix("_")
