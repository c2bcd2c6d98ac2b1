"""Per-tensor int8 dense layers with the accuracy of per-channel quantization, for older runtimes.

TFLite before version 12 of FULLY_CONNECTED, including the last Android archive on Maven Central, supports only
per-tensor quantization for float inputs. With a single scale per tensor, outputs with small weights lose precision and
the network loses accuracy. This module keeps a scale per output, in a multiplication after the layer. With scales s,
s' = max s and bias b,

  s ∘ (q·x) + b = (s / s') ∘ (s' (q·x) + b ∘ s' / s).

A fused relu stays in the layer, because s / s' is positive.
"""

from __future__ import annotations

import copy
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.op_histogram import FILE_IDENTIFIER

# What the converter records for a per-tensor int8 layer with float inputs, with and without the input's rank.
_ONE_SCALE_VERSION = 9
_HOMOGENEOUS = (schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU)


def per_channel_to_per_tensor(content: bytes) -> bytes:
    """Rewrites every per-channel int8 FULLY_CONNECTED as a per-tensor one followed by a MUL.

    Args:
      content: content of a `.tflite` file.
    Returns:
      Content of a file that computes the same function.
    Raises:
      ValueError: a layer has a fused activation other than relu.
    """
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    writer = _Writer(model)
    for graph in model.subgraphs:
        # Several operators may share a weight: read its scales before changing any of them.
        scales = {index: tensor.quantization.scale for index, tensor in enumerate(graph.tensors) if _is_split(tensor)}
        operators = []
        for operator in graph.operators:
            operators.append(operator)
            if writer.is_fully_connected(operator) and operator.inputs[1] in scales:
                operators.append(writer.move_scales(graph, operator, scales[operator.inputs[1]]))
        graph.operators = operators
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


def _is_split(tensor: Any) -> bool:
    quantization = tensor.quantization
    return (
        tensor.type == schema.TensorType.INT8
        and quantization is not None
        and quantization.scale is not None
        and len(quantization.scale) > 1
    )


class _Writer:
    """Adds constants, tensors and operators to a model.

    Args:
      model: changed in place.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._buffers: dict[bytes, int] = {}
        self._fully_connected = {
            index
            for index, code in enumerate(model.operatorCodes)
            if code.builtinCode == schema.BuiltinOperator.FULLY_CONNECTED
        }
        for index in self._fully_connected:
            code = model.operatorCodes[index]
            code.version = min(code.version, _ONE_SCALE_VERSION)
        product = schema.OperatorCodeT()
        product.builtinCode = product.deprecatedBuiltinCode = schema.BuiltinOperator.MUL
        product.version = 1
        model.operatorCodes.append(product)
        self._product = len(model.operatorCodes) - 1

    def is_fully_connected(self, operator: Any) -> bool:
        return operator.opcodeIndex in self._fully_connected

    def move_scales(self, graph: Any, operator: Any, scales: np.ndarray) -> Any:
        """Makes the operator per-tensor; returns the multiplication to insert after it."""
        if operator.builtinOptions.fusedActivationFunction not in _HOMOGENEOUS:
            raise ValueError("scales can only be moved behind relu or no activation; received another activation")
        scales = np.asarray(scales, np.float32)
        largest = scales.max()
        # An output without weights may have no scale; any value works.
        factors = np.where(scales > 0, scales / largest, np.float32(1)).astype(np.float32)
        weight = graph.tensors[operator.inputs[1]]
        weight.quantization.scale = np.array([largest], np.float32)
        weight.quantization.zeroPoint = np.zeros(1, np.int64)
        if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
            bias = graph.tensors[operator.inputs[2]]
            values = np.frombuffer(bytes(self._model.buffers[bias.buffer].data), np.float32)
            operator.inputs = [*operator.inputs[:2], self._constant(graph, bias.name, values / factors)]
        unscaled = copy.copy(graph.tensors[operator.outputs[0]])
        unscaled.name = bytes(unscaled.name) + b"/unscaled"
        graph.tensors.append(unscaled)
        product = schema.OperatorT()
        product.opcodeIndex = self._product
        product.builtinOptionsType = schema.BuiltinOptions.MulOptions
        product.builtinOptions = schema.MulOptionsT()
        product.inputs = [len(graph.tensors) - 1, self._constant(graph, bytes(weight.name) + b"/scales", factors)]
        product.outputs = [operator.outputs[0]]
        operator.outputs = [product.inputs[0]]
        return product

    def _constant(self, graph: Any, name: bytes, values: np.ndarray) -> int:
        """Index of a new float32 tensor; equal values share a buffer in all graphs."""
        content = values.astype(np.float32).tobytes()
        if content not in self._buffers:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(content, np.uint8)
            self._model.buffers.append(buffer)
            self._buffers[content] = len(self._model.buffers) - 1
        tensor = schema.TensorT()
        tensor.name, tensor.type, tensor.shape = name, schema.TensorType.FLOAT32, [len(values)]
        tensor.buffer = self._buffers[content]
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1
