"""int8 constants in DeBERTa's products by distance, for files from ai-edge-quantizer.

`layers.relative_attention` multiplies queries and keys by constants. TensorFlow's converter makes them int8, with one
scale each, for `dynamic_wi8`. ai-edge-quantizer leaves them float32, and LiteRT has no int4 products of this kind.
"""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.quantization.blockwise import FEWEST_QUANTIZED
from pocketbert_export.tflite.graph import operator_name

# Operator version with int8 constants and float activations.
_VERSION = 4


def round_position_tables(model: schema.ModelT) -> None:
    """Rounds a file's float32 constants in BATCH_MATMUL to int8, as the converter does."""
    scales: dict[int, float] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if operator_name(model, operator) != "BATCH_MATMUL":
                continue
            tensor = graph.tensors[operator.inputs[1]]
            buffer = model.buffers[tensor.buffer]
            is_small = np.prod(tensor.shape) < FEWEST_QUANTIZED
            if buffer.data is None or tensor.type != schema.TensorType.FLOAT32 or is_small:
                continue
            # Several graphs may share a constant.
            if tensor.buffer not in scales:
                values = np.asarray(buffer.data, np.uint8).view(np.float32)
                scale = scales[tensor.buffer] = float(np.abs(values).max()) / 127 or 1.0
                buffer.data = np.round(values / np.float32(scale)).astype(np.int8).view(np.uint8)
            tensor.type = schema.TensorType.INT8
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [scales[tensor.buffer]], [0]
            operator.builtinOptions.asymmetricQuantizeInputs = True
            code = model.operatorCodes[operator.opcodeIndex]
            code.version = max(code.version, _VERSION)
