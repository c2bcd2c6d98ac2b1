"""Read a `.tflite` file's contents without executing it: operators, signatures, weights."""

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
from pocketbert_export.tflite.graph import FILE_IDENTIFIER, TYPE_NAMES, operator_name, tensor_name

# Operators between an input and the embedding that it indexes.
_ID_ARITHMETIC = ("ADD", "CAST", "EXPAND_DIMS", "MUL", "PAD", "RESHAPE", "SELECT", "SELECT_V2", "SQUEEZE")
# An operator's first version for int4 weights and float inputs.
INT4_VERSIONS = {"EMBEDDING_LOOKUP": 4, "FULLY_CONNECTED": 12}
# Errors from reading offsets and indices in a truncated or changed file.
_DAMAGE = (struct.error, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class TensorInfo:
    """Type (TFLite's name in lower case) and shape of a signature's input or output."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """A signature's named inputs and outputs."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]


@dataclass(frozen=True)
class TableInfo:
    """An embedding table: number of rows, and whether the first two differ."""

    rows: int
    first_two_differ: bool


@dataclass(frozen=True, kw_only=True)
class OpHistogram:
    """A file's contents.

    Attributes:
      operators: builtin operator → number of uses in all graphs.
      custom: custom operators' names, sorted; TensorFlow's own (Flex) begin with `Flex`.
      signatures: name → inputs and outputs.
      file_bytes: the file's size.
      weight_bytes: bytes in all constants; a buffer counts once, however many graphs use it.
      weight_bytes_by_type: type → its part of `weight_bytes` (by the first tensor with the buffer).
      int8_fully_connected: number of FULLY_CONNECTED operators with an int8 weight.
      channelwise_fully_connected: how many have per-channel quantization, accepted for float inputs from version 12 on.
      int4_operators: names of operators with int4 weights.
      dynamic: names of tensors with dynamic dimensions.
      largest_constant: largest magnitude in the floating-point constants; infinite if one is NaN.
      largest_constant_reader: name of an output from this constant's reader.
      tables: input → its embedding tables, one per graph with such a table.
    """

    operators: Mapping[str, int]
    custom: tuple[str, ...]
    signatures: Mapping[str, Signature]
    file_bytes: int
    weight_bytes: int
    weight_bytes_by_type: Mapping[str, int]
    int8_fully_connected: int
    channelwise_fully_connected: int
    int4_operators: frozenset[str]
    dynamic: tuple[str, ...]
    largest_constant: float
    largest_constant_reader: str
    tables: Mapping[str, tuple[TableInfo, ...]]

    @property
    def num_operators(self) -> int:
        """Number of operators in all graphs."""
        return sum(self.operators.values()) + len(self.custom)

    @property
    def needed_versions(self) -> dict[str, int]:
        """Operator → version required by its weights, whatever version the file records.

        The recorded version can be wrong: the converter writes 12 for every such FULLY_CONNECTED, while
        ai-edge-quantizer keeps the float model's version, and an old runtime then returns wrong outputs.
        """
        needed = {"FULLY_CONNECTED": 12} if self.channelwise_fully_connected else {}
        return needed | {name: INT4_VERSIONS[name] for name in sorted(self.int4_operators)}


def count_ops(path: str | Path) -> OpHistogram:
    """Reads a `.tflite` file; raises a `UserError` if it is truncated or not a TFLite model."""
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
    int4_operators, dynamic = set(), set()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            type_of_buffer.setdefault(tensor.buffer, TYPE_NAMES[tensor.type])
            # Dynamic dimensions are -1 in a shape's signature and 1 in the shape itself.
            if min([*_numbers(tensor.shape), *_numbers(tensor.shapeSignature)], default=0) < 0:
                dynamic.add(_text(tensor.name))
        for operator in graph.operators or ():
            name = operator_name(model, operator)
            if name == "CUSTOM":
                custom[_text(model.operatorCodes[operator.opcodeIndex].customCode)] += 1
                continue
            operators[name] += 1
            if name in INT4_VERSIONS and TYPE_NAMES[graph.tensors[operator.inputs[1]].type] == "int4":
                int4_operators.add(name)
            if name == "FULLY_CONNECTED":
                weight = graph.tensors[operator.inputs[1]]
                if TYPE_NAMES[weight.type] == "int8":
                    int8_fully_connected += 1
                    scales = weight.quantization.scale if weight.quantization else None
                    is_hybrid = TYPE_NAMES[graph.tensors[operator.inputs[0]].type] == "float32"
                    channelwise += is_hybrid and scales is not None and len(scales) > 1
    sizes = {
        index: len(buffer.data) if buffer.data is not None else buffer.size
        for index, buffer in enumerate(model.buffers)
    }
    by_type: Counter[str] = Counter()
    for index, kind in type_of_buffer.items():
        by_type[kind] += sizes[index]
    largest, reader = _largest_constant(model)
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
        int4_operators=frozenset(int4_operators),
        dynamic=tuple(sorted(dynamic)),
        largest_constant=largest,
        largest_constant_reader=reader,
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


def _numbers(vector: Any) -> list[int]:
    return [] if vector is None else [int(number) for number in vector]


def _largest_constant(model: schema.ModelT) -> tuple[float, str]:
    """The largest magnitude, and an output name from its reader."""
    largest, reader = 0.0, ""
    read = set()
    for graph in model.subgraphs:
        for index, tensor in enumerate(graph.tensors):
            dtype, data = _FLOATS.get(TYPE_NAMES[tensor.type]), model.buffers[tensor.buffer].data
            if dtype is None or data is None or tensor.buffer in read:
                continue
            read.add(tensor.buffer)
            magnitude = float(np.max(np.abs(np.asarray(data, np.uint8).view(dtype)), initial=0.0))
            magnitude = np.inf if np.isnan(magnitude) else magnitude
            if magnitude > largest:
                largest, reader = magnitude, _reader(model, graph, index)
    return largest, reader


def _reader(model: schema.ModelT, graph: schema.SubGraphT, constant: int) -> str:
    """Constants have no telling names: returns the name behind the first operator that computes with one."""
    for operator in graph.operators or ():
        if constant in _numbers(operator.inputs):
            if operator_name(model, operator) != "DEQUANTIZE":
                return tensor_name(graph.tensors[operator.outputs[0]])
            constant = int(operator.outputs[0])
    return tensor_name(graph.tensors[constant])


def _tables(model: schema.ModelT) -> dict[str, tuple[TableInfo, ...]]:
    by_name: dict[str, tuple[TableInfo, ...]] = {}
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for entry in signature.inputs or ():
            table = _table(model, graph, entry.tensorIndex)
            if table is not None:
                by_name[_text(entry.name)] = (*by_name.get(_text(entry.name), ()), table)
    return by_name


def _table(model: schema.ModelT, graph: schema.SubGraphT, ids: int) -> TableInfo | None:
    """Follows ids through the graph to the operator that looks them up."""
    reached, made_from = {ids}, {}
    for operator in graph.operators or ():
        name, inputs = operator_name(model, operator), _numbers(operator.inputs)
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
