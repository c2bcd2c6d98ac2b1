"""Contents of a `.tflite` file: operators, signatures, weights. Nothing is executed."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert.errors import UserError

FILE_IDENTIFIER = b"TFL3"
BUILTIN_NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
LARGEST_FLOAT16 = 65_504.0
# What stands between an input and the table that it chooses rows of.
_ID_ARITHMETIC = ("ADD", "CAST", "EXPAND_DIMS", "MUL", "RESHAPE", "SELECT", "SELECT_V2", "SQUEEZE")
# What a reader of offsets and indices runs into where a file is cut short or changed.
_DAMAGE = (struct.error, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
TYPE_NAMES = {code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")}


@dataclass(frozen=True)
class TensorInfo:
    """A signature's input or output: TFLite's type name in lower case, and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """The named inputs and outputs of one entry into the model."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]


@dataclass(frozen=True)
class TableInfo:
    """An embedding table: its rows, and whether the first two differ."""

    rows: int
    first_two_differ: bool


@dataclass(frozen=True, kw_only=True)
class OpHistogram:
    """Contents of the file.

    Attributes:
      operators: builtin operator → how often, over all graphs.
      custom: names of custom operators, sorted; TensorFlow's own (Flex) begin with `Flex`.
      signatures: name → inputs and outputs.
      file_bytes: the file's size.
      weight_bytes: bytes of all constant data, each buffer once however many graphs use it.
      weight_bytes_by_type: type → its share of `weight_bytes` (the type of the first tensor that uses the buffer).
      int8_fully_connected: FULLY_CONNECTED operators with an int8 weight.
      channelwise_fully_connected: those of them with per-channel quantization, which TFLite accepts for float
        inputs only from version 12 of the operator.
      dynamic: names of tensors with a dimension that is open until the file runs.
      largest_constant: the largest magnitude among floating-point constants; infinite if one is not a number.
      tables: input → the embedding tables that it chooses rows of, one for each graph that has one.
    """

    operators: Mapping[str, int]
    custom: tuple[str, ...]
    signatures: Mapping[str, Signature]
    file_bytes: int
    weight_bytes: int
    weight_bytes_by_type: Mapping[str, int]
    int8_fully_connected: int
    channelwise_fully_connected: int
    dynamic: tuple[str, ...]
    largest_constant: float
    tables: Mapping[str, tuple[TableInfo, ...]]

    @property
    def num_operators(self) -> int:
        """Operators over all graphs."""
        return sum(self.operators.values()) + len(self.custom)

    @property
    def needed_versions(self) -> dict[str, int]:
        """Operator → the version that the weights need, whatever the file records.

        A recorded version is a claim: the converter writes 12 for every such FULLY_CONNECTED, while
        ai-edge-quantizer keeps the float model's, and an old runtime then computes nonsense.
        """
        return {"FULLY_CONNECTED": 12} if self.channelwise_fully_connected else {}


def count_ops(path: str | Path) -> OpHistogram:
    """Reads a `.tflite` file.

    Raises:
      UserError: the file is not a TFLite model, or is cut short.
    """
    content = Path(path).read_bytes()
    if len(content) < 8 or content[4:8] != FILE_IDENTIFIER:
        raise UserError(f"{path} must be a TFLite model (identifier TFL3); received {content[4:8]!r}; export it again")
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
        return _count(model, len(content))
    except _DAMAGE as error:
        raise UserError(
            f"{path} must be a whole TFLite model; received a damaged one ({error}); export it again"
        ) from error


def _count(model: schema.ModelT, file_bytes: int) -> OpHistogram:
    operators: Counter[str] = Counter()
    custom: Counter[str] = Counter()
    type_of_buffer: dict[int, str] = {}
    int8_fully_connected = channelwise = 0
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            type_of_buffer.setdefault(tensor.buffer, TYPE_NAMES[tensor.type])
        for operator in graph.operators or ():
            code = model.operatorCodes[operator.opcodeIndex]
            name = _operator(code)
            if name == "CUSTOM":
                custom[_text(code.customCode)] += 1
                continue
            operators[name] += 1
            if name == "FULLY_CONNECTED":
                weight = graph.tensors[operator.inputs[1]]
                if TYPE_NAMES[weight.type] == "int8":
                    int8_fully_connected += 1
                    scales = weight.quantization.scale if weight.quantization else None
                    channelwise += scales is not None and len(scales) > 1
    sizes = {
        index: len(buffer.data) if buffer.data is not None else buffer.size
        for index, buffer in enumerate(model.buffers)
    }
    by_type: Counter[str] = Counter()
    for index, kind in type_of_buffer.items():
        by_type[kind] += sizes[index]
    return OpHistogram(
        operators=dict(sorted(operators.items())),
        custom=tuple(sorted(custom.elements())),
        signatures={
            _text(signature.signatureKey): Signature(
                inputs=_tensors(model, signature, signature.inputs),
                outputs=_tensors(model, signature, signature.outputs),
            )
            for signature in model.signatureDefs or ()
        },
        file_bytes=file_bytes,
        weight_bytes=sum(by_type.values()),
        weight_bytes_by_type={kind: size for kind, size in sorted(by_type.items()) if size},
        int8_fully_connected=int8_fully_connected,
        channelwise_fully_connected=channelwise,
        dynamic=_dynamic(model),
        largest_constant=_largest_constant(model),
        tables=_tables(model),
    )


def _tensors(
    model: schema.ModelT, signature: schema.SignatureDefT, entries: list[schema.TensorMapT] | None
) -> dict[str, TensorInfo]:
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    return {
        _text(entry.name): TensorInfo(
            TYPE_NAMES[tensors[entry.tensorIndex].type], tuple(map(int, tensors[entry.tensorIndex].shape))
        )
        for entry in entries or ()
    }


def _operator(code: schema.OperatorCodeT) -> str:
    # Codes above 127 live in the new field; files of before it existed have only the old one.
    return BUILTIN_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]


def _dynamic(model: schema.ModelT) -> tuple[str, ...]:
    """Open dimensions are -1 in the signature of a shape, and 1 in the shape itself."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    shapes = ((tensor, [*_numbers(tensor.shape), *_numbers(tensor.shapeSignature)]) for tensor in tensors)
    return tuple(sorted({_text(tensor.name) for tensor, shape in shapes if min(shape, default=0) < 0}))


def _numbers(vector: Any) -> list[int]:
    return [] if vector is None else [int(number) for number in vector]


def _largest_constant(model: schema.ModelT) -> float:
    largest = 0.0
    read = set()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            dtype, data = _FLOATS.get(TYPE_NAMES[tensor.type]), model.buffers[tensor.buffer].data
            if dtype is None or data is None or tensor.buffer in read:
                continue
            read.add(tensor.buffer)
            magnitude = float(np.max(np.abs(np.asarray(data, np.uint8).view(dtype)), initial=0.0))
            largest = max(largest, np.inf if np.isnan(magnitude) else magnitude)
    return largest


def _tables(model: schema.ModelT) -> dict[str, tuple[TableInfo, ...]]:
    found: dict[str, list[TableInfo]] = {}
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for entry in signature.inputs or ():
            table = _table(model, graph, entry.tensorIndex)
            if table is not None:
                found.setdefault(_text(entry.name), []).append(table)
    return {name: tuple(tables) for name, tables in found.items()}


def _table(model: schema.ModelT, graph: schema.SubGraphT, ids: int) -> TableInfo | None:
    """Follows ids through the graph to the operator that looks them up."""
    reached, made_from = {ids}, {}
    for operator in graph.operators or ():
        name, inputs = _operator(model.operatorCodes[operator.opcodeIndex]), _numbers(operator.inputs)
        if name == "DEQUANTIZE":
            made_from[int(operator.outputs[0])] = inputs[0]
        if name in ("GATHER", "EMBEDDING_LOOKUP"):
            table, indices = inputs[:2] if name == "GATHER" else inputs[1::-1]
            if indices in reached:
                return _table_info(model, graph.tensors[made_from.get(table, table)])
        elif name in _ID_ARITHMETIC and reached.intersection(inputs):
            reached.update(_numbers(operator.outputs))
    return None


def _table_info(model: schema.ModelT, tensor: schema.TensorT) -> TableInfo:
    rows, data = int(tensor.shape[0]), model.buffers[tensor.buffer].data
    quantization = tensor.quantization
    scales = [] if quantization is None or quantization.scale is None else list(quantization.scale)
    if data is None or rows < 2:
        return TableInfo(rows, False)
    values = np.asarray(data, np.uint8).reshape(rows, -1)
    return TableInfo(rows, bool((values[0] != values[1]).any()) or len(scales) == rows and scales[0] != scales[1])


def _text(value: bytes | str) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else value
