"""Scale the differences from the mean inside layer norms, whose squares would overflow in float16.

With d = x - mean(x), a layer norm computes d / sqrt(mean(d²) + epsilon). Scaled by c = 2^-k, it is
(c·d) / sqrt(mean((c·d)²) + c²·epsilon). A multiplication by c is inserted; powers of two make the rest exact.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.tflite.graph import GraphEditor, drop_unused, operator_name, read_model, write_model


def is_square(model: schema.ModelT, operator: schema.OperatorT) -> bool:
    """Whether an operator multiplies a tensor by itself."""
    return operator_name(model, operator) == "MUL" and operator.inputs[0] == operator.inputs[1]


def scale_layer_norms(content: bytes, largest: Mapping[int, float], limit: float) -> bytes:
    """Scales layer norms whose squares exceed a limit.

    Args:
      content: content of a float32 file with the same operators in every signature.
      largest: position of a square → its largest output.
      limit: largest output allowed.
    Returns:
      Content of a file with the same outputs. Squares outside a layer norm stay as they are.
    """
    scales = {
        tensor_position: 2.0 ** -np.ceil(np.log2(size / limit) / 2)
        for tensor_position, size in largest.items()
        if size > limit
    }
    model = read_model(content)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        before: dict[int, schema.OperatorT] = {}
        for position, scale in scales.items():
            norm = _layer_norm(model, graph, position)
            if norm is not None:
                before[position] = _scale(editor, graph, graph.operators[position], norm, scale)
        graph.operators = [
            inserted
            for position, operator in enumerate(graph.operators)
            for inserted in ([before[position]] if position in before else []) + [operator]
        ]
    drop_unused(model)
    return write_model(model)


def _layer_norm(
    model: schema.ModelT, graph: schema.SubGraphT, position: int
) -> tuple[schema.OperatorT, schema.OperatorT, schema.OperatorT] | None:
    """Difference, sum with epsilon and last product of the layer norm around a square."""
    square = graph.operators[position]
    differences = [
        operator
        for operator in graph.operators[:position]
        if operator_name(model, operator) == "SUB" and operator.outputs[0] == square.inputs[0]
    ]
    operators, tensor = [], int(square.outputs[0])
    for name in ("MEAN", "ADD", "RSQRT", "MUL"):
        readers = [operator for operator in graph.operators if tensor in [int(index) for index in operator.inputs]]
        if len(readers) != 1 or operator_name(model, readers[0]) != name:
            return None
        operators.append(readers[0])
        tensor = int(readers[0].outputs[0])
    if not differences or int(square.inputs[0]) not in [int(index) for index in operators[-1].inputs]:
        return None
    return differences[0], operators[1], operators[3]


def _scale(
    editor: GraphEditor,
    graph: schema.SubGraphT,
    square: schema.OperatorT,
    norm: tuple[schema.OperatorT, schema.OperatorT, schema.OperatorT],
    scale: float,
) -> schema.OperatorT:
    """Changes the operators of a layer norm; returns what must run before the square."""
    difference, with_epsilon, product = norm
    plain = int(difference.outputs[0])
    tensor = graph.tensors[plain]
    scaled = editor.tensor(graph, bytes(tensor.name) + b"/scaled", tensor.type, tensor.shape)
    factor = editor.constant(graph, b"layer norm scale", np.array(scale, np.float32))
    constants = {int(index): editor.values(graph, int(index)) for index in with_epsilon.inputs}
    with_epsilon.inputs = [
        index if values is None else editor.constant(graph, b"epsilon", np.array(values * scale**2, np.float32))
        for index, values in constants.items()
    ]
    square.inputs = [scaled, scaled]
    product.inputs = [scaled if int(index) == plain else index for index in product.inputs]
    return editor.operator("MUL", [plain, factor], [scaled], schema.MulOptionsT())
