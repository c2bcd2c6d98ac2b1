"""Read, change and write the graphs in a `.tflite` file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert.errors import UserError

FILE_IDENTIFIER = b"TFL3"
BUILTIN_NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
_TYPES = {
    np.dtype(np.float16): schema.TensorType.FLOAT16,
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.int32): schema.TensorType.INT32,
}
TYPE_NAMES = {code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")}
_FLOAT_TYPES = {schema.TensorType.FLOAT16: np.float16, schema.TensorType.FLOAT32: np.float32}
_INTEGER_TYPES = {
    schema.TensorType.INT4: np.int8,
    schema.TensorType.INT8: np.int8,
    schema.TensorType.INT16: np.int16,
    schema.TensorType.INT32: np.int32,
}


def read_model(content: bytes) -> schema.ModelT:
    """Returns a `.tflite` file's tables as mutable objects."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for buffer in model.buffers:
        # ai-edge-quantizer stores weights behind the tables. Inside, the file can have 2 GB, more than any of ours.
        if buffer.offset > 1:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def write_model(model: schema.ModelT) -> bytes:
    """Returns the content for a `.tflite` file."""
    builder = flatbuffers.Builder(sum(0 if buffer.data is None else len(buffer.data) for buffer in model.buffers))
    builder.Finish(model.Pack(builder), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


def code_name(code: schema.OperatorCodeT) -> str:
    """Returns an operator code's name, such as `FULLY_CONNECTED`."""
    # Codes above 127 use the new field; older files have only the old one.
    return BUILTIN_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]


def operator_name(model: schema.ModelT, operator: schema.OperatorT) -> str:
    """Returns an operator's name, such as `FULLY_CONNECTED`."""
    return code_name(model.operatorCodes[operator.opcodeIndex])


def tensor_name(tensor: schema.TensorT) -> str:
    """Returns a tensor's name; if the converter fused several operators, the first one's."""
    return bytes(tensor.name).decode("utf-8", "replace").partition(";")[0]


@dataclass(frozen=True)
class Constant:
    """A constant in a file.

    Attributes:
      name: the tensor's name.
      kind: its type: float32, float16, int8, int4 or int16.
      values: float32, dequantized, in the tensor's shape.
      per_tensor: whether all numbers share a scale.
    """

    name: str
    kind: str
    values: np.ndarray
    per_tensor: bool


def constants(model: schema.ModelT, fewest: int) -> Iterator[Constant]:
    """Yields the operators' constants with at least `fewest` elements, each once even if several graphs read it."""
    read = set()
    for graph in model.subgraphs:
        inputs = {int(index) for operator in graph.operators or () for index in operator.inputs}
        for tensor in (tensor for index, tensor in enumerate(graph.tensors) if index in inputs):
            shape = tuple(int(size) for size in ([] if tensor.shape is None else tensor.shape))
            scales = None if tensor.quantization is None else tensor.quantization.scale
            key = (tensor.buffer, None if scales is None else tuple(scales))
            if model.buffers[tensor.buffer].data is None or math.prod(shape) < fewest or key in read:
                continue
            read.add(key)
            values = _dequantized(model, graph, tensor, shape)
            if values is not None:
                per_tensor = scales is not None and len(scales) == 1
                yield Constant(tensor_name(tensor), TYPE_NAMES[tensor.type], values, per_tensor)


def _dequantized(
    model: schema.ModelT, graph: schema.SubGraphT, tensor: schema.TensorT, shape: tuple[int, ...]
) -> np.ndarray | None:
    """A constant's numbers as float32; None for integers without a scale."""
    data, quantization = np.asarray(model.buffers[tensor.buffer].data, np.uint8), tensor.quantization
    if tensor.type in _FLOAT_TYPES:
        return data.view(_FLOAT_TYPES[tensor.type]).reshape(shape).astype(np.float32)
    if quantization is None or tensor.type not in _INTEGER_TYPES:
        return None
    if tensor.type == schema.TensorType.INT4:
        halves = np.stack([data << 4, data & 0xF0], axis=1).view(np.int8) >> 4
        numbers = halves.reshape(-1)[: math.prod(shape)].reshape(shape)
    else:
        numbers = data.view(_INTEGER_TYPES[tensor.type]).reshape(shape)
    if isinstance(quantization.details, schema.BlockwiseQuantizationT):
        block = graph.tensors[quantization.details.scales]
        scales = np.asarray(model.buffers[block.buffer].data, np.uint8).view(np.float16).astype(np.float32)
        blocks = numbers.reshape(-1, quantization.details.blockSize).astype(np.float32)
        return (blocks * scales.reshape(-1, 1)).reshape(shape)
    if quantization.scale is None:
        return None
    along = [-1 if axis == quantization.quantizedDimension else 1 for axis in range(len(shape))]
    scales, zeros = (
        np.asarray(values, np.float32).reshape(along if len(values) > 1 else [1] * len(shape))
        for values in (quantization.scale, [0] if quantization.zeroPoint is None else quantization.zeroPoint)
    )
    return (numbers - zeros).astype(np.float32) * scales


AttentionProduct = Literal["logits", "context"]


def producer_positions(graph: schema.SubGraphT) -> dict[int, int]:
    """Tensor index → position of the operator that computes it."""
    return {int(tensor): position for position, operator in enumerate(graph.operators) for tensor in operator.outputs}


def attention_products(model: schema.ModelT) -> dict[int, AttentionProduct]:
    """Finds attention's matrix products by position: logits before, context after the softmax."""
    graph = model.subgraphs[0]
    producers = producer_positions(graph)
    products: dict[int, AttentionProduct] = {}
    for position, operator in enumerate(graph.operators):
        if operator_name(model, operator) == "BATCH_MATMUL":
            source = producers.get(int(operator.inputs[0]))
            is_context = source is not None and operator_name(model, graph.operators[source]) == "SOFTMAX"
            products[position] = "context" if is_context else "logits"
    return products


def drop_unused(model: schema.ModelT) -> None:
    """Empties buffers without a reader, so replaced weights leave the file."""
    used = {
        graph.tensors[index].buffer
        for graph in model.subgraphs
        for indices in (graph.inputs, graph.outputs, *(operator.inputs for operator in graph.operators))
        for index in indices
        if index >= 0
    }
    used |= {metadata.buffer for metadata in model.metadata or ()}
    # No operator reads the scales of blocks: the quantized tensor names theirs.
    used |= {
        graph.tensors[tensor.quantization.details.scales].buffer
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.quantization is not None
        and isinstance(tensor.quantization.details, schema.BlockwiseQuantizationT)
        and tensor.buffer in used
    }
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.buffer not in used:
                tensor.buffer = 0
    for index, buffer in enumerate(model.buffers):
        if index and index not in used:
            buffer.data = None


def keep_signature(model: schema.ModelT, name: str) -> schema.SignatureDefT:
    """Leaves one signature and its subgraph in the model; returns the signature."""
    signature = next(definition for definition in model.signatureDefs if definition.signatureKey.decode() == name)
    model.subgraphs = [model.subgraphs[signature.subgraphIndex]]
    signature.subgraphIndex = 0
    model.signatureDefs = [signature]
    drop_unused(model)
    return signature


def one_signature(content: bytes, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Returns a file with one of the signatures, for clients that only know a file's inputs and outputs by position.

    Constants and operators stay as they are. The tensors get the names that the signature has for them.

    Args:
      content: a file with signatures.
      name: the signature's.
      inputs: names of all its inputs, in the order for the file.
      outputs: the same for its outputs.
    """
    model = read_model(content)
    signature = keep_signature(model, name)
    graph = model.subgraphs[0]
    for ordered, entries in ((inputs, signature.inputs), (outputs, signature.outputs)):
        entries.sort(key=lambda entry, ordered=ordered: ordered.index(entry.name.decode()))
        for entry in entries:
            graph.tensors[entry.tensorIndex].name = entry.name
    graph.inputs = [entry.tensorIndex for entry in signature.inputs]
    graph.outputs = [entry.tensorIndex for entry in signature.outputs]
    return write_model(model)


class GraphEditor:
    """Adds constants, tensors and operators to a model's graphs. Equal constants share a buffer in all graphs.

    Args:
      model: changed in place.
    """

    def __init__(self, model: schema.ModelT) -> None:
        self._model = model
        self._buffers: dict[bytes, int] = {}
        self._codes: dict[tuple[int, int], int] = {}

    def values(self, graph: schema.SubGraphT, tensor: int) -> np.ndarray | None:
        """Returns a float32 constant, or None for other tensors."""
        stored = graph.tensors[tensor]
        data = self._model.buffers[stored.buffer].data
        if data is None or stored.type != schema.TensorType.FLOAT32:
            return None
        return np.frombuffer(bytes(data), np.float32).reshape([int(size) for size in stored.shape])

    def constant(self, graph: schema.SubGraphT, name: bytes, values: np.ndarray) -> int:
        """Adds a float32, float16 or int32 constant; returns its index."""
        content = values.dtype.str.encode() + values.tobytes()
        if content not in self._buffers:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(values.tobytes(), np.uint8)
            self._model.buffers.append(buffer)
            self._buffers[content] = len(self._model.buffers) - 1
        index = self.tensor(graph, name, _TYPES[values.dtype], values.shape)
        graph.tensors[index].buffer = self._buffers[content]
        return index

    def tensor(self, graph: schema.SubGraphT, name: bytes, dtype: int, shape: Sequence[int]) -> int:
        """Adds a tensor without content; returns its index."""
        tensor = schema.TensorT()
        tensor.name, tensor.type, tensor.shape, tensor.buffer = name, dtype, [int(size) for size in shape], 0
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def operator(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None, version: int = 1
    ) -> schema.OperatorT:
        """Makes an operator such as `MUL` with options such as `schema.MulOptionsT()`; the caller places it."""
        builtin = getattr(schema.BuiltinOperator, name)
        if (builtin, version) not in self._codes:
            code = schema.OperatorCodeT()
            code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), version
            self._model.operatorCodes.append(code)
            self._codes[builtin, version] = len(self._model.operatorCodes) - 1
        operator = schema.OperatorT()
        operator.opcodeIndex = self._codes[builtin, version]
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if options is not None:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
            operator.builtinOptions = options
        return operator

    def like(self, graph: schema.SubGraphT, tensor: int, suffix: bytes) -> int:
        """Adds a tensor with another's type and shape, and its name with a suffix; returns its index."""
        source = graph.tensors[tensor]
        return self.tensor(graph, bytes(source.name) + suffix, source.type, source.shape)

    def multiply(
        self, graph: schema.SubGraphT, source: int, name: bytes, factors: np.ndarray, target: int
    ) -> schema.OperatorT:
        """Makes an operator to multiply a tensor by a constant; `name` is the constant's."""
        return self.operator("MUL", [source, self.constant(graph, name, factors)], [target], schema.MulOptionsT())

    def scaled(self, graph: schema.SubGraphT, tensor: int, factors: np.ndarray) -> tuple[int, schema.OperatorT]:
        """Scales an activation by a float32 factor per channel; returns its index and the multiplication to insert."""
        product = self.like(graph, tensor, b"/scaled")
        return product, self.multiply(graph, tensor, bytes(graph.tensors[tensor].name) + b"/scales", factors, product)

    def reshape(self, graph: schema.SubGraphT, source: int, target: int) -> schema.OperatorT:
        """Makes an operator to give a tensor another's shape."""
        shape = np.array(graph.tensors[target].shape, np.int32)
        options = schema.ReshapeOptionsT()
        options.newShape = list(shape)
        name = bytes(graph.tensors[target].name) + b"/shape"
        return self.operator("RESHAPE", [source, self.constant(graph, name, shape)], [target], options)


def split_evenly(content: bytes) -> bytes:
    """Replaces SPLIT_V with equal parts by SPLIT, which XNNPACK supports, also in int8."""
    model = read_model(content)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        for position, operator in enumerate(graph.operators):
            if operator_name(model, operator) == "SPLIT_V":
                shapes = {tuple(graph.tensors[output].shape) for output in operator.outputs}
                if len(shapes) == 1:
                    options = schema.SplitOptionsT()
                    options.numSplits = len(operator.outputs)
                    inputs = [operator.inputs[2], operator.inputs[0]]
                    graph.operators[position] = editor.operator("SPLIT", inputs, operator.outputs, options)
    return write_model(model)


def require_equal_graphs(content: bytes) -> None:
    """Raises a `UserError` unless the graphs for all lengths have the same operators, in the same order."""
    model = read_model(content)
    graphs = [[operator_name(model, operator) for operator in graph.operators] for graph in model.subgraphs]
    if any(graph != graphs[0] for graph in graphs):
        raise UserError(
            "a recipe that knows layers by their place needs lengths whose graphs have the same operators; received "
            f"graphs with {', '.join(str(len(graph)) for graph in graphs)} operators; export these lengths into "
            "bundles of their own"
        )


def share_quantization(content: bytes) -> bytes:
    """Stores equal quantization tables once instead of once per signature.

    The converter shares the weights between signatures, but not their scales, and MobileBERT has many. The file format
    allows any number of references to a table, so nothing changes for a runtime.
    """
    model = read_model(content)
    shared: dict[bytes, _PackedOnce] = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.quantization is not None and tensor.quantization.scale is not None:
                packed = flatbuffers.Builder(0)
                packed.Finish(tensor.quantization.Pack(packed))
                tensor.quantization = shared.setdefault(bytes(packed.Output()), _PackedOnce(tensor.quantization))
    return write_model(model)


class _PackedOnce:
    """A table, packed on first use and referenced afterwards."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._offset: int | None = None

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802
        if self._offset is None:
            self._offset = self._table.Pack(builder)
        return self._offset
