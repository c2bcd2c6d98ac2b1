"""Smoothing: large channels move from activations into weights, so that dynamic int8 rounds both evenly.

Source: Xiao et al. 2023, SmoothQuant, eq. 4 with α = 0.5 (https://arxiv.org/abs/2211.10438). Dynamic int8 has one range
for all channels in a token. The converter folds a layer norm's gamma into the dense layers behind it, so nothing scales
down the largest channels in their inputs. With x the input to dense layers with weights W, and

  s_j = sqrt(max |x_j| / max |W_j|),

the layers read x / s and have the weights s ∘ W. Departures:

- A few texts give the size of x_j, so it is the root mean square; a single token would decide the maximum.
- The division is a multiplication in front of the layers. It is not folded into the layer norm, because the residual
  connection also reads the norm's output.
- Layers that share their weights have one s, for the inputs of all of them.
- The embedding table has per-tensor quantization; it is divided by each column's largest value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.tflite.graph import GraphEditor, operator_name, read_model, write_model

_LARGEST = 127.0


def smooth(content: bytes, floats: bytes, sizes: Mapping[int, np.ndarray]) -> bytes:
    """Smooths the dense layers and the embedding in a dynamic int8 file; the function stays the same, up to rounding.

    Args:
      content: content of the int8 file.
      floats: content of a float file with the same layers in the same order.
      sizes: position of a dense layer in the float file → root mean square per channel in its input.
    """
    model, source = read_model(content), read_model(floats)
    editor, reader = GraphEditor(model), GraphEditor(source)
    inputs = [sizes[position] for position in dense_layers(floats)]
    for graph, float_graph in zip(model.subgraphs, source.subgraphs, strict=True):
        before: dict[int, list[Any]] = {}
        after: dict[int, list[Any]] = {}
        dense = _layers(model, graph, "FULLY_CONNECTED")
        layers = [float_graph.operators[position] for position in _layers(source, float_graph, "FULLY_CONNECTED")]
        weights: list[Any] = [reader.values(float_graph, layer.inputs[1]) for layer in layers]
        for numbers in _groups(graph, dense):
            heaviest = np.max([np.abs(weights[number]).max(axis=0) for number in numbers], axis=0)
            sizes_of_inputs = np.sqrt(np.mean([np.square(inputs[number]) for number in numbers], axis=0))
            # SmoothQuant's scale; 1 for channels without values.
            used = (sizes_of_inputs > 0) & (heaviest > 0)
            largest = np.where(used, sizes_of_inputs, 1.0)
            scale = np.where(used, np.sqrt(largest / np.where(used, heaviest, 1.0)), 1.0)
            smoothed: dict[int, int] = {}
            for number in numbers:
                operator = graph.operators[dense[number]]
                tensor = int(operator.inputs[0])
                if tensor not in smoothed:
                    smoothed[tensor], product = editor.scaled(graph, tensor, (1 / scale).astype(np.float32))
                    before[dense[number]] = [product]
                operator.inputs = [smoothed[tensor], *operator.inputs[1:]]
                _requantize(model, graph, operator.inputs[1], weights[number] * scale)
        _smooth_table(model, graph, editor, reader.values, (source, float_graph), after)
        graph.operators = [
            written
            for position, operator in enumerate(graph.operators)
            for written in (*before.get(position, ()), operator, *after.get(position, ()))
        ]
    return write_model(model)


def dense_layers(content: bytes) -> list[int]:
    """Returns the dense layers' positions, equal in each graph."""
    model = read_model(content)
    return _layers(model, model.subgraphs[0], "FULLY_CONNECTED")


def _groups(graph: Any, dense: list[int]) -> list[list[int]]:
    """Groups int8 dense layers, by their number among all: those with a common input or common weights."""
    groups: list[tuple[set[tuple[str, int]], list[int]]] = []
    for number, position in enumerate(dense):
        source, weight = map(int, graph.operators[position].inputs[:2])
        if not _is_int8(graph, weight):
            continue
        keys, numbers = {("input", source), ("weights", int(graph.tensors[weight].buffer))}, [number]
        for group in [group for group in groups if group[0] & keys]:
            groups.remove(group)
            keys, numbers = keys | group[0], [*group[1], *numbers]
        groups.append((keys, sorted(numbers)))
    return [numbers for _, numbers in groups]


def _smooth_table(
    model: Any, graph: Any, editor: GraphEditor, values: Any, floats: tuple[Any, Any], after: dict[int, list[Any]]
) -> None:
    """Divides an int8 embedding table by its columns' largest values, and multiplies behind its DEQUANTIZE."""
    gathers = [graph.operators[position] for position in _layers(model, graph, "GATHER")]
    lookups = [operator for operator in gathers if _is_int8(graph, operator.inputs[0])]
    if len(lookups) != 1:
        return
    (lookup,) = lookups
    size = tuple(graph.tensors[lookup.inputs[0]].shape)
    source, float_graph = floats
    gathers = [float_graph.operators[position] for position in _layers(source, float_graph, "GATHER")]
    tables = [values(float_graph, operator.inputs[0]) for operator in gathers]
    table = next(table for table in tables if table is not None and table.shape == size)
    lookup_position, dequantize = next(
        (position, operator)
        for position, operator in enumerate(graph.operators)
        if operator_name(model, operator) == "DEQUANTIZE" and operator.inputs[0] == lookup.outputs[0]
    )
    columns = np.maximum(np.abs(table).max(axis=0), np.finfo(np.float32).tiny)
    _requantize(model, graph, lookup.inputs[0], table / columns, per_row=False)
    graph.tensors[lookup.outputs[0]].quantization = graph.tensors[lookup.inputs[0]].quantization
    raw = editor.tensor(graph, b"smoothed table", schema.TensorType.FLOAT32, graph.tensors[dequantize.outputs[0]].shape)
    after[lookup_position] = [
        editor.multiply(graph, raw, b"columns", columns.astype(np.float32), dequantize.outputs[0])
    ]
    dequantize.outputs = [raw]


def _layers(model: Any, graph: Any, name: str) -> list[int]:
    return [position for position, operator in enumerate(graph.operators) if operator_name(model, operator) == name]


def _is_int8(graph: Any, tensor: int) -> bool:
    return graph.tensors[tensor].type == schema.TensorType.INT8


def _requantize(model: Any, graph: Any, tensor: int, values: np.ndarray, *, per_row: bool = True) -> None:
    """Replaces an int8 constant; signatures share its buffer, so the same values are written again."""
    largest = np.abs(values).max(axis=1) if per_row else np.abs(values).max(keepdims=True).ravel()
    steps = np.maximum(largest, np.finfo(np.float32).tiny).astype(np.float32) / np.float32(_LARGEST)
    rounded = np.round(values / (steps[:, np.newaxis] if per_row else steps[0])).astype(np.int8)
    stored = graph.tensors[tensor]
    model.buffers[stored.buffer].data = np.frombuffer(rounded.tobytes(), np.uint8)
    stored.quantization.scale = steps
    stored.quantization.zeroPoint = np.zeros(len(steps), np.int64)
