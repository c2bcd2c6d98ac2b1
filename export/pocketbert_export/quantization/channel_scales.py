"""Scale single activation channels in a float file by powers of two, without changing its outputs.

A channel's scale multiplies the weights that write it, and divides the weights that read it. Operators such as ADD need
the same scale in their inputs and outputs, so their channels form a group. In a MobileBERT with folded NoNorm, the
residual stream's groups are the free vector t in s[l] = t ∘ Π gamma (`graph_optimization.fold_no_norm`): all layers
share it, and linear heads divide their kernels by it. Groups exist inside each bottleneck and behind relu, too.

Powers of two make this exact: float32 outputs keep every bit. Other operators, such as GELU or a layer norm, fix their
groups' scale at 1. If the file outputs a scaled tensor, a MUL in front restores its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pocketbert_export.tflite.graph import GraphEditor, drop_unused, operator_name, read_model, write_model

_HOMOGENEOUS = (schema.ActivationFunctionType.NONE, schema.ActivationFunctionType.RELU)
_MOVES = frozenset({"CONCATENATION", "PAD", "RELU", "RESHAPE", "SPLIT", "SPLIT_V", "STRIDED_SLICE"})
_LOOKUPS = {"EMBEDDING_LOOKUP": 1, "GATHER": 0}
# Tensor and its first channel, another tensor and its first channel, number of channels.
_Link = tuple[int, int, int, int, int]


class ChannelGroups:
    """Groups of channels with a common scale; channels count along a tensor's last axis."""

    def __init__(self, model: schema.ModelT) -> None:
        graph = model.subgraphs[0]
        reader = _Reader(model, graph)
        # Channel 0 stands for all with the scale 1.
        count, starts = 1, {}
        self._first: dict[tuple[int, int], tuple[int, int]] = {}
        for position, operator in enumerate(graph.operators):
            for number, index in enumerate(operator.outputs):
                if reader.is_activation(int(index)):
                    starts[int(index)] = count
                    self._first[position, number] = count, reader.width(int(index))
                    count += reader.width(int(index))
        pairs = [_pairs(starts, reader, operator) for operator in graph.operators]
        left, right = np.concatenate([np.zeros((2, 0), np.int64), *pairs], axis=1)
        links = coo_matrix((np.ones(len(left), bool), (left, right)), shape=(count, count))
        self.count, self._labels = connected_components(links, directed=False)

    def of(self, position: int, number: int = 0) -> np.ndarray:
        """Returns each channel's group in an operator's output; empty if it is no activation."""
        first, width = self._first.get((position, number), (0, 0))
        return self._labels[first : first + width]

    @property
    def movable(self) -> np.ndarray:
        """Whether each group can have another scale than 1, `[count]`."""
        return np.arange(self.count) != self._labels[0]


def scale_channels(content: bytes, groups: ChannelGroups, scales: np.ndarray) -> bytes:
    """Scales a float32 file's channels, with equal outputs, by powers of two; 1 unless a group is `movable`."""
    model = read_model(content)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        of_tensor = {}
        for position, operator in enumerate(graph.operators):
            for number, index in enumerate(operator.outputs):
                factors = scales[groups.of(position, number)].astype(np.float32)
                if np.any(factors != 1):
                    of_tensor[int(index)] = factors
        _Scaling(model, graph, editor, of_tensor).apply()
    drop_unused(model)
    return write_model(model)


class _Reader:
    """Reads a graph's tensors."""

    def __init__(self, model: schema.ModelT, graph: schema.SubGraphT) -> None:
        self._model, self._graph = model, graph
        self._inputs = {int(index) for index in graph.inputs}

    def name(self, operator: schema.OperatorT) -> str:
        return operator_name(self._model, operator)

    def is_constant(self, index: int) -> bool:
        return self._model.buffers[self._graph.tensors[index].buffer].data is not None

    def is_activation(self, index: int) -> bool:
        tensor = self._graph.tensors[index]
        return tensor.type == schema.TensorType.FLOAT32 and index not in self._inputs and not self.is_constant(index)

    def shape(self, index: int) -> list[int]:
        shape = self._graph.tensors[index].shape
        return [] if shape is None else [int(size) for size in shape]

    def width(self, index: int) -> int:
        return (self.shape(index) or [1])[-1]


def _pairs(starts: dict[int, int], reader: _Reader, operator: schema.OperatorT) -> np.ndarray:
    """Pairs of channels that an operator gives the same scale, `[2, pairs]`."""
    inputs = [int(index) for index in operator.inputs if int(index) in starts]
    outputs = [int(index) for index in operator.outputs if int(index) in starts]
    links = _links(reader, operator, inputs, outputs)
    if links is None:
        channels = [starts[index] + np.arange(reader.width(index)) for index in (*inputs, *outputs)]
        joined = np.concatenate([np.zeros(0, np.int64), *channels])
        return np.stack([joined, np.zeros_like(joined)])
    pairs = [
        np.stack([starts[one] + first, starts[other] + second])[:, None] + np.arange(size)
        for one, first, other, second, size in links
    ]
    return np.concatenate([np.zeros((2, 0), np.int64), *pairs], axis=1)


def _links(reader: _Reader, operator: schema.OperatorT, inputs: list[int], outputs: list[int]) -> list[_Link] | None:
    """Activation channels with the same scale; None if the operator fixes their scales at 1."""
    name = reader.name(operator)
    widths = [reader.width(index) for index in inputs], [reader.width(index) for index in outputs]
    constants = [int(index) for index in operator.inputs if int(index) >= 0 and reader.is_constant(int(index))]
    if not outputs or getattr(operator.builtinOptions, "fusedActivationFunction", _HOMOGENEOUS[0]) not in _HOMOGENEOUS:
        return None
    if name == "FULLY_CONNECTED":
        absorbs = len(inputs) == 1 and reader.is_constant(int(operator.inputs[1]))
        return [] if absorbs and reader.shape(int(operator.inputs[1])) == [widths[1][0], widths[0][0]] else None
    if name in _LOOKUPS:
        table = int(operator.inputs[_LOOKUPS[name]])
        return [] if reader.is_constant(table) and reader.width(table) == widths[1][0] else None
    same = [(tensor, 0, outputs[0], 0, widths[1][0]) for tensor in inputs]
    if name == "MUL":
        (factor,) = constants if len(inputs) == len(constants) == 1 else (None,)
        if factor is None or widths[0] != widths[1]:
            return None
        return [] if reader.width(factor) == widths[1][0] else same if reader.shape(factor) == [] else None
    if name in ("ADD", "SUB"):
        fits = all(reader.width(index) == widths[1][0] for index in (*inputs, *constants))
        return same if fits and len(inputs) + len(constants) == 2 else None
    if name not in _MOVES or not inputs:
        return None
    if len({*widths[0], *widths[1]}) == 1:
        return [(one, 0, other, 0, widths[0][0]) for one in inputs for other in outputs]
    if sum(widths[0]) != sum(widths[1]):
        return None
    whole, parts = (inputs, outputs) if len(inputs) == 1 else (outputs, inputs)
    firsts = np.cumsum([0, *(reader.width(index) for index in parts)])
    return [(whole[0], int(first), part, 0, reader.width(part)) for first, part in zip(firsts[:-1], parts, strict=True)]


class _Scaling:
    """Scales a graph's channels, by tensor."""

    def __init__(
        self, model: schema.ModelT, graph: schema.SubGraphT, editor: GraphEditor, scales: dict[int, np.ndarray]
    ) -> None:
        self._graph, self._editor, self._scales = graph, editor, scales
        self._reader = _Reader(model, graph)

    def apply(self) -> None:
        for operator in self._graph.operators:
            self._scale_constants(operator)
        self._graph.operators += list(self._restore_outputs())

    def _scale_constants(self, operator: schema.OperatorT) -> None:
        name, written = self._reader.name(operator), self._scales.get(int(operator.outputs[0]))
        activations = [int(index) for index in operator.inputs if int(index) in self._scales]
        read = self._scales[activations[0]] if activations else None
        if written is None and read is None:
            return
        output, inverse = (np.float32(1) if factor is None else factor for factor in (written, read))
        factors: dict[int, Any] = {}
        if name == "FULLY_CONNECTED":
            factors = {1: np.reshape(output, [-1, 1]) / inverse, 2: output}
        elif name in _LOOKUPS:
            factors = {_LOOKUPS[name]: output}
        elif name == "MUL":
            factors = dict.fromkeys(range(2), output / inverse)
        elif name in ("ADD", "SUB"):
            factors = dict.fromkeys(range(2), output)
        indices = [int(index) for index in operator.inputs]
        for number, index in enumerate(indices):
            # A scalar multiplies all channels in a group and leaves its scale.
            if number in factors and index >= 0 and self._reader.is_constant(index) and self._reader.shape(index):
                values = self._editor.values(self._graph, index)
                assert values is not None
                name_of_constant = self._graph.tensors[index].name
                indices[number] = self._editor.constant(self._graph, name_of_constant, values * factors[number])
        operator.inputs = indices

    def _restore_outputs(self) -> Iterator[schema.OperatorT]:
        """Restores the values of scaled outputs."""
        graph, editor = self._graph, self._editor
        for index in dict.fromkeys(int(index) for index in graph.outputs):
            if index in self._scales:
                scaled = editor.like(graph, index, b"/scaled")
                for operator in graph.operators:
                    operator.inputs, operator.outputs = (
                        [scaled if int(tensor) == index else tensor for tensor in tensors]
                        for tensors in (operator.inputs, operator.outputs)
                    )
                name = bytes(graph.tensors[index].name) + b"/scales"
                yield editor.multiply(graph, scaled, name, 1 / self._scales[index], index)
