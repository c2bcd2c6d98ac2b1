"""Choose the integer operators in a static file, and the ranges they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.quantization.calibration import Ranges
from pocketbert_export.quantization.calibration_options import PADDING_MARGIN
from pocketbert_export.quantization.quantize import LayerFormat
from pocketbert_export.tflite.graph import (
    GraphEditor,
    attention_products,
    operator_name,
    producer_positions,
    read_model,
)

# Outputs have the first activation's values, and so its range.
_MOVES = frozenset({"PAD", "RESHAPE", "SPLIT", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"})
_ARITHMETIC = frozenset(
    {"BATCH_MATMUL", "CONCATENATION", "FULLY_CONNECTED", "GATHER", "GELU", "RELU", "SOFTMAX", "TANH"}
)
_SUMS = frozenset({"ADD", "MUL", "SUB"})
# An int8 probability has 256 steps.
_PROBABILITIES = (0.0, 255 / 256)


@dataclass(frozen=True, kw_only=True)
class IntegerOperators:
    """Operators with integer arithmetic.

    Attributes:
      formats: position of an operator → its format.
      measured: positions of operators with output ranges from calibration.
      sources: position of an operator → operator with the same range.
      fixed: ranges that no text changes.
      masked: position of a sum of attention logits and mask → positions of both terms.
      centred: positions of operators with the output zero point 0. Keys and values need it: XNNPACK in TFLite 2.21
        ignores the zero point in a matrix product's second input.
    """

    formats: dict[int, LayerFormat]
    measured: Sequence[int]
    sources: dict[int, int] = field(default_factory=dict)
    fixed: Ranges = field(default_factory=dict)
    masked: dict[int, tuple[int, int]] = field(default_factory=dict)
    centred: frozenset[int] = frozenset()

    def ranges(self, measured: Ranges, padding_margin: float = PADDING_MARGIN) -> Ranges:
        """Returns all ranges.

        Args:
          measured: the ranges for `measured`.
          padding_margin: distance from padding's attention logits up to all others.
        """
        ranges = measured | self.fixed
        for position in self.centred:
            largest = max(-ranges[position][0], ranges[position][1])
            # 128 steps below 0, 127 above.
            ranges[position] = -largest * 128 / 127, largest
        for position, (logits, mask) in self.masked.items():
            low, high = ranges[logits]
            ranges[position] = low - padding_margin, high
            # Any padding logit ends at or below the lower limit.
            ranges[mask] = low - high - padding_margin, 0.0
        for position, source in self.sources.items():
            ranges[position] = ranges[source]
        return ranges


def every_operator(content: bytes) -> list[int]:
    """Finds all operators between embedding tables and outputs with an int8 form and no loss in accuracy.

    With a LayerNorm in the network, norms and sums stay float: the variance over int8 values has too few bits.
    """
    model = read_model(content)
    graph = model.subgraphs[0]
    producers = producer_positions(graph)
    names = [operator_name(model, operator) for operator in graph.operators]
    has_norms = "MEAN" in names
    behind: set[int] = set()
    positions: list[int] = []
    for position, operator in enumerate(graph.operators):
        sources = [producers[int(index)] for index in operator.inputs if int(index) in producers]
        if names[position] != "GATHER" and not any(source in behind for source in sources):
            # The mask.
            continue
        behind.add(position)
        if any(graph.tensors[index].type != schema.TensorType.FLOAT32 for index in operator.outputs):
            continue
        is_masked = names[position] == "ADD" and names[sources[0]] == "BATCH_MATMUL"
        if (
            names[position] in _ARITHMETIC
            or (names[position] in _MOVES and (sources[0] in positions or not has_norms))
            or (names[position] in _SUMS and (is_masked or not has_norms))
        ):
            positions.append(position)
    return positions


def integer_operators(content: bytes, formats: dict[int, LayerFormat]) -> IntegerOperators:
    """Determines the ranges for static operators, by position in a float32 file."""
    model = read_model(content)
    editor, graph = GraphEditor(model), model.subgraphs[0]
    producers, products = producer_positions(graph), attention_products(model)
    names = [operator_name(model, operator) for operator in graph.operators]
    needed, sources, fixed, masked = set(formats), {}, {}, {}
    for position in formats:
        operator = graph.operators[position]
        terms = [producers[int(index)] for index in operator.inputs if int(index) in producers]
        if names[position] == "GATHER":
            # An int8 row has the range of its table.
            table = editor.values(graph, operator.inputs[0])
            assert table is not None
            fixed[position] = float(table.min()), float(table.max())
            continue
        needed.update(terms)
        if names[position] in _MOVES:
            sources[position] = terms[0]
        elif names[position] == "SOFTMAX":
            fixed[position] = _PROBABILITIES
        elif names[position] == "ADD" and products.get(terms[0]) == "logits":
            masked[position] = terms[0], terms[1]
    centred = set()
    for position in products.keys() & formats.keys():
        source = producers[int(graph.operators[position].inputs[1])]
        while source in sources:
            source = sources[source]
        centred.add(source)
    derived = {*sources, *fixed, *masked, *(mask for _, mask in masked.values())}
    return IntegerOperators(
        formats=formats,
        measured=sorted(needed - derived),
        sources=sources,
        fixed=fixed,
        masked=masked,
        centred=frozenset(centred),
    )
