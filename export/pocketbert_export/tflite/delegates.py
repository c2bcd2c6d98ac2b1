"""Estimate by documented rules which operators in a file GPU and NPU delegates take.

The runtime itself counts the operators in XNNPACK (`interpreter_process.delegate`). These counts need no GPU or NPU:
they follow the rules in LiteRT's source. TensorFlow's and LiteRT's analyzers have `gpu_compatibility=True`, but in
released packages it accepts every operator, even `UNIQUE`.

- GPU: `tflite/tools/versioning/gpu_compatibility.cc` (operators, ranks, options) and `GetOpsToReplace` in
  `tflite/delegates/gpu/common/model_builder.cc` (types; integers only where listed).
- NPU: `litert/vendors/qualcomm/compiler/Qualcomm_QNN_Compiler.md` (operators; no blockwise quantization). Float inputs
  with quantized weights, as in dynamic recipes, do not count: only recent versions of Qualcomm's SDK accept some.

Drivers and chips can refuse more operators, and the GPU delegate takes the largest connected part only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.tflite.graph import operator_name, read_model

_FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
_GPU_TYPES = (*_FLOATS, schema.TensorType.INT8, schema.TensorType.UINT8)
_QUANTIZED = (schema.TensorType.INT8, schema.TensorType.INT4, schema.TensorType.UINT8)
_GPU_OPERATORS = frozenset(
    "ABS ADD ADD_N ATAN2 AVERAGE_POOL_2D BATCH_MATMUL BITCAST CAST CEIL CONCATENATION CONV_2D COS CUMSUM DENSIFY "
    "DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP EQUAL EXP FLOOR "
    "FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GELU GREATER GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL "
    "LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG "
    "NOT_EQUAL ONE_HOT PACK PAD PADV2 POW PRELU QUANTIZE REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD "
    "RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RIGHT_SHIFT ROUND RSQRT "
    "SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE "
    "STRIDED_SLICE SUB SUM TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV".split()
)
_NPU_OPERATORS = frozenset(
    "ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL BROADCAST_TO CAST CEIL CONCATENATION CONV_2D CONV_3D "
    "COS CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP EQUAL "
    "EXP FLOOR FLOOR_DIV FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL HARD_SWISH L2_NORMALIZATION "
    "L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MAX_POOL_2D "
    "MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 POW PRELU QUANTIZE REDUCE_ALL REDUCE_ANY REDUCE_MAX "
    "REDUCE_MIN RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 "
    "ROUND RSQRT SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQRT SQUARE SQUARED_DIFFERENCE "
    "STRIDED_SLICE SUB SUM TANH TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV UNPACK".split()
)


@dataclass(frozen=True, kw_only=True)
class DelegateShare:
    """A delegate's operators in a file's first graph; all lengths have the same operators.

    Attributes:
      name: XNNPACK, GPU, NPU, or int8 NPU, which has no floating-point operators.
      delegated_ops: number of operators in the delegate.
      total_ops: number of operators in the graph.
      left: operator on the CPU's own kernels → number of uses.
      source: origin of the count: a runtime, or documented rules.
    """

    name: str
    delegated_ops: int
    total_ops: int
    left: Mapping[str, int]
    source: str


def documented_shares(path: str | Path) -> tuple[DelegateShare, ...]:
    """Counts GPU and NPU delegates' operators by documented rules, without executing the file."""
    model = read_model(Path(path).read_bytes())
    return tuple(_share(model, name, takes, source) for name, (takes, source) in _RULES.items())


def _share(model: schema.ModelT, name: str, takes: Callable[[_Operator], bool], source: str) -> DelegateShare:
    operators = [_Operator(model, graph_operator) for graph_operator in model.subgraphs[0].operators or ()]
    left = Counter(operator.name for operator in operators if not takes(operator))
    return DelegateShare(
        name=name,
        delegated_ops=len(operators) - left.total(),
        total_ops=len(operators),
        left=dict(sorted(left.items())),
        source=source,
    )


class _Operator:
    """An operator in the first graph, with its tensors."""

    def __init__(self, model: schema.ModelT, operator: schema.OperatorT) -> None:
        tensors = model.subgraphs[0].tensors
        self.name = operator_name(model, operator)
        self.options = operator.builtinOptions
        self.inputs = [tensors[index] for index in operator.inputs if index >= 0]
        self.outputs = [tensors[index] for index in operator.outputs]
        self.constants = [tensor for tensor in self.inputs if model.buffers[tensor.buffer].data is not None]
        self.variables = [tensor for tensor in self.inputs if model.buffers[tensor.buffer].data is None]


def _gpu_takes(operator: _Operator) -> bool:
    integers = {
        "CAST": (schema.TensorType.INT32, schema.TensorType.BOOL),
        "GATHER": (schema.TensorType.INT32,),
        "ONE_HOT": (schema.TensorType.INT32,),
        "SELECT": (schema.TensorType.BOOL,),
        "SELECT_V2": (schema.TensorType.BOOL,),
    }.get(operator.name, ())
    results = (*_GPU_TYPES, *integers) if operator.name == "CAST" else _GPU_TYPES
    return (
        operator.name in _GPU_OPERATORS
        and all(variable.type in (*_GPU_TYPES, *integers) for variable in operator.variables)
        and all(output.type in results for output in operator.outputs)
        and _gpu_takes_shapes(operator)
    )


def _gpu_takes_shapes(operator: _Operator) -> bool:
    ranks = [len(_shape(tensor)) for tensor in operator.inputs]
    options = operator.options
    match operator.name:
        case "GATHER":
            return ranks[1] == 1
        case "SLICE":
            return ranks[0] in (3, 4)
        case "STRIDED_SLICE":
            return ranks[0] in (3, 4) and not (options.ellipsisMask or options.newAxisMask or options.shrinkAxisMask)
        case "PAD" | "PADV2" | "MIRROR_PAD":
            return _shape(operator.inputs[1]) in ([3, 2], [4, 2])
        case "FULLY_CONNECTED":
            return not options.weightsFormat and (
                not options.keepNumDims or ranks[0] == len(_shape(operator.outputs[0]))
            )
        case _:
            return True


def _npu_takes(operator: _Operator) -> bool:
    hybrid = any(constant.type in _QUANTIZED for constant in operator.constants) and operator.outputs[0].type in _FLOATS
    blockwise = any(
        tensor.quantization and tensor.quantization.detailsType == schema.QuantizationDetails.BlockwiseQuantization
        for tensor in operator.inputs
    )
    return operator.name in _NPU_OPERATORS and not blockwise and (not hybrid or operator.name == "DEQUANTIZE")


def _int8_npu_takes(operator: _Operator) -> bool:
    has_floats = any(tensor.type in _FLOATS for tensor in (*operator.inputs, *operator.outputs))
    return _npu_takes(operator) and not has_floats


def _shape(tensor: Any) -> list[int]:
    return [] if tensor.shape is None else np.asarray(tensor.shape).tolist()


_RULES = {
    "GPU": (_gpu_takes, "rules of LiteRT's GPU delegate (gpu_compatibility.cc, model_builder.cc)"),
    "NPU": (_npu_takes, "rules of LiteRT's Qualcomm compiler (Qualcomm_QNN_Compiler.md)"),
    "int8 NPU": (_int8_npu_takes, "the same rules, for an NPU without float32 and float16"),
}
