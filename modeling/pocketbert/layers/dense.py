"""Dense maps, alone or several of one input as one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import Activation


class Dense(tf_keras.layers.Layer):
    """y = x·kernel + bias, on the last axis.

    Args:
      inputs: features in.
      outputs: features out.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = self.add_weight("kernel", [inputs, outputs], initializer="zeros")
        self.bias = self.add_weight("bias", [outputs], initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [..., inputs] to [..., outputs]."""
        return _affine(x, self.kernel, self.bias)


def project(pairs: Sequence[tuple[tf.Tensor, Dense]], *, fused: bool) -> list[tf.Tensor]:
    """Applies several linear maps, each to its own input.

    Args:
      pairs: (input, map). Inputs that are the same tensor object may share one product.
      fused: concatenate the kernels of maps of one input. Frozen for export, the concatenation is a constant.
    Returns:
      The outputs in the order of `pairs`.
    """
    if not fused:
        return [linear(x) for x, linear in pairs]
    groups: dict[int, list[int]] = {}
    for position, (x, _) in enumerate(pairs):
        groups.setdefault(id(x), []).append(position)
    outputs: dict[int, tf.Tensor] = {}
    for positions in groups.values():
        x = pairs[positions[0]][0]
        linears = [pairs[position][1] for position in positions]
        if len(linears) == 1:
            outputs[positions[0]] = linears[0](x)
            continue
        kernel = tf.concat([linear.kernel for linear in linears], axis=1)
        bias = tf.concat([linear.bias for linear in linears], axis=0)
        parts = tf.split(_affine(x, kernel, bias), [linear.bias.shape[0] for linear in linears], axis=-1)
        outputs.update(zip(positions, parts, strict=True))
    return [outputs[position] for position in range(len(pairs))]


def activate(x: tf.Tensor, activation: Activation) -> tf.Tensor:
    """Applies a named activation: `gelu` (erf), `gelu_tanh` or `relu`."""
    if activation == "relu":
        return tf.nn.relu(x)
    return tf.nn.gelu(x, approximate=activation == "gelu_tanh")


def _affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    # One two-dimensional product is what the CPU and TFLite kernels are fast at.
    rows = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, kernel.shape[0]]), kernel), bias)
    return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], axis=0))
