"""Prepare a float graph for int4 weights in blocks, each with its scale.

LiteRT requires two changes. There is no int4 GATHER, but EMBEDDING_LOOKUP reads int4 rows. Blocks divide a weight's
width, so other widths are padded with zeros. Both changes are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.recipes import BLOCK_SIZE
from pocketbert_export.tflite.graph import GraphEditor, drop_unused, operator_name, read_model, write_model

# The converter, too, quantizes matrices from this number of elements on.
FEWEST_QUANTIZED = 1024


def prepare_for_blocks(content: bytes) -> bytes:
    """Replaces large row GATHERs by EMBEDDING_LOOKUP, and pads dense layers' inputs to whole blocks."""
    model = read_model(content)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        operators: list[Any] = []
        padded: dict[int, int] = {}
        for operator in graph.operators:
            name, weight = operator_name(model, operator), _weight(editor, graph, operator, model)
            if weight is None:
                operators.append(operator)
            elif name == "GATHER":
                operators += _lookup(editor, graph, operator, weight)
            else:
                operators += _pad(editor, graph, operator, weight, padded)
        graph.operators = operators
    drop_unused(model)
    return write_model(model)


def _weight(editor: GraphEditor, graph: Any, operator: Any, model: Any) -> np.ndarray | None:
    """The matrix to quantize, `[outputs, inputs]` or `[rows, width]`; None for operators without one."""
    name = operator_name(model, operator)
    if name not in ("GATHER", "FULLY_CONNECTED"):
        return None
    if name == "GATHER" and (operator.builtinOptions.axis or operator.builtinOptions.batchDims):
        return None
    values = editor.values(graph, operator.inputs[0 if name == "GATHER" else 1])
    return values if values is not None and values.ndim == 2 and values.size >= FEWEST_QUANTIZED else None


def _lookup(editor: GraphEditor, graph: Any, operator: Any, table: np.ndarray) -> list[Any]:
    """RESHAPE, EMBEDDING_LOOKUP, an optional SLICE, and RESHAPE."""
    ids, output = graph.tensors[operator.inputs[1]], graph.tensors[operator.outputs[0]]
    count, width, name = int(np.prod(ids.shape)), table.shape[1], bytes(output.name)
    flat = editor.tensor(graph, name + b"/ids", ids.type, [count])
    table_index, stored_width = operator.inputs[0], -(-width // BLOCK_SIZE) * BLOCK_SIZE
    if stored_width != width:
        table_index = editor.constant(graph, graph.tensors[table_index].name, _widened(table, stored_width))
    rows = editor.tensor(graph, name + b"/rows", output.type, [count, stored_width])
    operators = [
        editor.reshape(graph, operator.inputs[1], flat),
        editor.operator("EMBEDDING_LOOKUP", [flat, table_index], [rows]),
    ]
    if stored_width != width:
        cut = editor.tensor(graph, name + b"/cut", output.type, [count, width])
        begin = editor.constant(graph, name + b"/begin", np.zeros(2, np.int32))
        size = editor.constant(graph, name + b"/size", np.array([count, width], np.int32))
        operators.append(editor.operator("SLICE", [rows, begin, size], [cut], schema.SliceOptionsT()))
        rows = cut
    return [*operators, editor.reshape(graph, rows, operator.outputs[0])]


def _pad(editor: GraphEditor, graph: Any, operator: Any, kernel: np.ndarray, padded: dict[int, int]) -> list[Any]:
    """The dense layer, after a PAD if its input is not padded yet and has no whole number of blocks."""
    source, width = int(operator.inputs[0]), kernel.shape[1]
    missing = -width % BLOCK_SIZE
    if not missing:
        return [operator]
    operators = []
    if source not in padded:
        tensor = graph.tensors[source]
        shape = [int(size) for size in tensor.shape]
        paddings = np.zeros([len(shape), 2], np.int32)
        paddings[-1, 1] = missing
        name = bytes(tensor.name)
        padded[source] = editor.tensor(graph, name + b"/padded", tensor.type, [*shape[:-1], width + missing])
        inputs = [source, editor.constant(graph, name + b"/paddings", paddings)]
        operators.append(editor.operator("PAD", inputs, [padded[source]], schema.PadOptionsT()))
    weight = editor.constant(graph, graph.tensors[operator.inputs[1]].name, _widened(kernel, width + missing))
    operator.inputs = [padded[source], weight, *operator.inputs[2:]]
    return [*operators, operator]


def _widened(matrix: np.ndarray, width: int) -> np.ndarray:
    return np.pad(matrix, [(0, 0), (0, width - matrix.shape[1])])
