"""A small recipe in one file and one row, as CONTRIBUTING describes it: float16 weights with nine significant bits.

The row is in the table as soon as this module is imported.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from pocketbert.layers.fake_quantization import FakeQuantization
from pocketbert.recipes import RECIPES, Recipe
from pocketbert_export.quantization.blockwise import FEWEST_QUANTIZED
from pocketbert_export.quantization.float16_range import round_weights
from pocketbert_export.quantization.quantizers import QuantizedFile, QuantizerInputs
from pocketbert_export.tflite.graph import read_model, write_model

# Of these 24 bits of a float32 number, the last 15 become 0.
_MASK = np.uint32(0xFFFF8000)

RECIPES["float16_9bits"] = Recipe(
    name="float16_9bits",
    weights="float16",
    activations="float",
    summary="as float16, and compresses better",
    # Four times the step of float16.
    bounds=dataclasses.replace(
        RECIPES["float16"].bounds, largest_difference=4e-2, rms_difference=1.2e-2, own_difference=2e-3
    ),
    wider="float16",
    quantizer="toy_recipe:quantize",
    rounding="toy_recipe:Rounding",
)


def quantize(content: bytes, recipe: Recipe, inputs: QuantizerInputs) -> QuantizedFile:
    """Rounds the matrices of a float32 file."""
    model = read_model(content)
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    for buffer in {tensor.buffer for tensor in tensors if np.prod(tensor.shape) >= FEWEST_QUANTIZED}:
        data = model.buffers[buffer].data
        if data is not None:
            bits = np.frombuffer(bytes(data), np.uint32)
            model.buffers[buffer].data = np.frombuffer((bits & _MASK).tobytes(), np.uint8)
    return QuantizedFile(content=round_weights(write_model(model)), method="truncated")


class Rounding(FakeQuantization):
    """Rounds weights of dense layers as the file does."""

    def kernel(self, kernel: tf.Tensor) -> tf.Tensor:
        bits = tf.bitwise.bitwise_and(tf.bitcast(kernel, tf.uint32), _MASK)
        return kernel + tf.stop_gradient(tf.bitcast(bits, tf.float32) - kernel)
