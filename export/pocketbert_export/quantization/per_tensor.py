"""Per-tensor int8 dense layers with the accuracy of per-channel quantization, for older runtimes.

TFLite before version 12 of FULLY_CONNECTED, including the last Android archive on Maven Central, supports only
per-tensor quantization for float inputs. With a single scale per tensor, outputs with small weights lose precision and
the network loses accuracy. This module keeps a scale per output, in a multiplication after the layer. With scales s, s'
= max s and bias b,

  s ∘ (q·x) + b = (s / s') ∘ (s' (q·x) + b ∘ s' / s).

A fused relu stays in the layer, because s / s' is positive.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.tflite.graph import GraphEditor, operator_name, read_model, write_model

# The converter records this for a per-tensor int8 layer with float inputs, with and without the input's rank.
_ONE_SCALE_VERSION = 9
_HOMOGENEOUS = (schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU)


def per_channel_to_per_tensor(content: bytes) -> bytes:
    """Rewrites every per-channel int8 FULLY_CONNECTED as a per-tensor one and a MUL; the function stays the same.

    Args:
      content: content of a `.tflite` file.
    Raises:
      ValueError: a layer has a fused activation other than relu.
    """
    model = read_model(content)
    for code in model.operatorCodes:
        if code.builtinCode == schema.BuiltinOperator.FULLY_CONNECTED:
            code.version = min(code.version, _ONE_SCALE_VERSION)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        # Several operators may share a weight: read its scales before changing any.
        scales = {}
        for index, tensor in enumerate(graph.tensors):
            scale = None if tensor.quantization is None else tensor.quantization.scale
            if tensor.type == schema.TensorType.INT8 and scale is not None and len(scale) > 1:
                scales[index] = scale
        operators = []
        for operator in graph.operators:
            operators.append(operator)
            if operator_name(model, operator) == "FULLY_CONNECTED" and operator.inputs[1] in scales:
                operators.append(_move_scales(editor, graph, operator, scales[operator.inputs[1]]))
        graph.operators = operators
    return write_model(model)


def multiply_output(editor: GraphEditor, graph: Any, operator: Any, factors: np.ndarray) -> Any:
    """Gives a dense layer a new output and divides its bias by `factors`; its weights are the caller's.

    Returns the multiplication by `factors`, positive float32 `[outputs]`, to insert after the layer; it writes the
    layer's former output. Raises ValueError if the layer has a fused activation other than relu.
    """
    if operator.builtinOptions.fusedActivationFunction not in _HOMOGENEOUS:
        raise ValueError("scales can only be moved behind relu or no activation; received another activation")
    if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
        bias = editor.values(graph, operator.inputs[2])
        assert bias is not None
        name = graph.tensors[operator.inputs[2]].name
        operator.inputs = [*operator.inputs[:2], editor.constant(graph, name, bias / factors)]
    unscaled = copy.copy(graph.tensors[operator.outputs[0]])
    unscaled.name = bytes(unscaled.name) + b"/unscaled"
    graph.tensors.append(unscaled)
    layer = len(graph.tensors) - 1
    name = bytes(graph.tensors[operator.inputs[1]].name) + b"/scales"
    (output,), operator.outputs = operator.outputs, [layer]
    return editor.multiply(graph, layer, name, factors, output)


def _move_scales(editor: GraphEditor, graph: Any, operator: Any, scales: np.ndarray) -> Any:
    """Makes the operator per-tensor; returns the multiplication to insert after it."""
    scales = np.asarray(scales, np.float32)
    largest = scales.max()
    # An output without weights may have no scale; any value works.
    factors = np.where(scales > 0, scales / largest, np.float32(1)).astype(np.float32)
    product = multiply_output(editor, graph, operator, factors)
    weight = graph.tensors[operator.inputs[1]]
    weight.quantization.scale = np.array([largest], np.float32)
    weight.quantization.zeroPoint = np.zeros(1, np.int64)
    return product
