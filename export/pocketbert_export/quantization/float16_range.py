"""Ranges of all activations in a float file, for runtimes with float16 arithmetic.

A `float16` file computes in float32 on the CPU. A GPU computes in float16, where numbers end at 65,504, and gives
infinite or undefined outputs if an activation exceeds this. The file itself runs here, so graph optimizations count.

Padding counts: its softmax weight is 0, but 0 times infinity is not a number. Logits behind the mask do not count,
where padding has -60,000 added; the gate's padding check has them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert.activation_stats import FLOAT16_MARGIN, FLOAT16_MAX, float16_warnings
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.recipes import Recipe
from pocketbert_export.checks.outputs import Check
from pocketbert_export.quantization.blockwise import FEWEST_QUANTIZED
from pocketbert_export.quantization.calibration import largest_per_channel
from pocketbert_export.quantization.channel_scales import ChannelGroups, scale_channels
from pocketbert_export.quantization.quantizers import QuantizedFile, QuantizerInputs
from pocketbert_export.tflite.graph import (
    GraphEditor,
    attention_products,
    drop_unused,
    operator_name,
    producer_positions,
    read_model,
    tensor_name,
    write_model,
)
from pocketbert_export.tflite.length_buckets import first_rows
from pocketbert_runtime.bundles.length_buckets import LengthBucket

# The largest activations depend on the network more than on the text.
_MOST_TEXTS = 64
_FLOAT16_DEQUANTIZE_VERSION = 3
# Outputs are values of their inputs or constants, or at most 1.
_NO_ARITHMETIC = frozenset(
    "CAST CONCATENATION DEQUANTIZE GATHER EMBEDDING_LOOKUP PAD RESHAPE SOFTMAX SPLIT SPLIT_V STRIDED_SLICE TRANSPOSE "
    "TANH LOGISTIC".split()
)
_BLOCK = re.compile(r"/(block(?:_\d+)?)/")


@dataclass(frozen=True, kw_only=True)
class Float16Range:
    """Largest absolute value in each activation.

    Attributes:
      maxima: the tensor's description with its name → value; infinite for NaN.
      num_texts: number of texts.
    """

    maxima: Mapping[str, float]
    num_texts: int

    @property
    def warnings(self) -> list[str]:
        """Activations that overflow in float16, or nearly do."""
        return float16_warnings(self.maxima)

    def check(self) -> Check:
        """Checks that all activations fit float16."""
        largest, value = max(self.maxima.items(), key=lambda item: item[1])
        over = [name for name, maximum in self.maxima.items() if not maximum <= FLOAT16_MAX]
        reason = f"largest activation on {self.num_texts:,} texts: {largest}; the bound is the float16 range"
        if over:
            others = [name for name in over if name != largest]
            more = f", and {', '.join(others[:3])}{' and others' if others[3:] else ''} exceed it too" if others else ""
            reason += (
                f"{more}; a GPU computes this file in float16; {argument('recipe', 'float32', of='export')} is for CPUs"
            )
        finite = math.isfinite(value)
        return Check(
            name="float16 range",
            passed=not over,
            measured=value if finite else None,
            bound=FLOAT16_MAX,
            reason=reason if finite else f"{reason}; not finite, in float32 already",
        )

    def to_json(self) -> dict[str, Any]:
        """The largest value and its place, limits and warnings for float16, and all maxima; null if not finite."""
        name, value = max(self.maxima.items(), key=lambda item: item[1])
        return {
            "texts": self.num_texts,
            "largest": {"tensor": name, "value": _finite(value)},
            "float16": {"largest": FLOAT16_MAX, "margin": FLOAT16_MARGIN, "warnings": self.warnings},
            "maxima": {name: _finite(value) for name, value in self.maxima.items()},
        }


def float16_range(content: bytes, buckets: Sequence[LengthBucket]) -> Float16Range:
    """Measures a file with float arithmetic on up to 64 texts, evenly from all lengths."""
    named = arithmetic_operators(read_model(content))
    chosen = first_rows(buckets, _MOST_TEXTS)
    largest = largest_per_channel(content, chosen, list(named), padding=True)
    maxima: dict[str, float] = {}
    for position, name in named.items():
        value = float(largest[position].max())
        # The converter may give two tensors one name.
        maxima[name] = max(maxima.get(name, 0.0), math.inf if math.isnan(value) else value)
    return Float16Range(maxima=maxima, num_texts=sum(len(bucket.indices) for bucket in chosen))


def round_weights(content: bytes) -> bytes:
    """Stores large matrices in float16, read through DEQUANTIZE; the converter would round before `fit_float16`."""
    model = read_model(content)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        rounded, conversions = {}, []
        for index, tensor in enumerate(list(graph.tensors)):
            # DeBERTa's constants for distances have other sizes for each length, but the operators must be the same.
            is_of_distances = np.size(tensor.shape) == 4
            is_large = is_of_distances or np.prod(tensor.shape) >= FEWEST_QUANTIZED
            if tensor.type == schema.TensorType.FLOAT32 and is_large:
                values = editor.values(graph, index)
                # The gate names a weight that does not fit, if it stays float32.
                if values is not None and values.ndim > 1 and np.abs(values).max() <= FLOAT16_MAX:
                    constant = editor.constant(graph, tensor.name, values.astype(np.float16))
                    name = bytes(tensor.name) + b"/float32"
                    rounded[index] = editor.tensor(graph, name, tensor.type, tensor.shape)
                    inputs, outputs, options = [constant], [rounded[index]], schema.DequantizeOptionsT()
                    conversions.append(
                        editor.operator("DEQUANTIZE", inputs, outputs, options, _FLOAT16_DEQUANTIZE_VERSION)
                    )
        for operator in graph.operators:
            operator.inputs = [rounded.get(int(index), int(index)) for index in operator.inputs]
        graph.operators = [*conversions, *graph.operators]
    drop_unused(model)
    return write_model(model)


def quantize_float16(content: bytes, recipe: Recipe, inputs: QuantizerInputs) -> QuantizedFile:
    """Quantizes for `float16`; texts fit the range."""
    fitted = fit_float16(content, inputs.buckets) if inputs.buckets else content
    return QuantizedFile(content=round_weights(fitted), method="channel scales")


def fit_float16(content: bytes, buckets: Sequence[LengthBucket]) -> bytes:
    """Scales activation channels by powers of two, so that they stay below the float16 range with a margin.

    Only channels above the margin are scaled: small weights lose bits in float16. Attention logits, outputs and the
    inputs to most activation functions keep their values; see `channel_scales`. Squares in layer norms are scaled, too.
    The file has the same outputs.
    """
    model = read_model(content)
    outputs = {int(index) for index in model.subgraphs[0].outputs}
    inner = [
        position
        for position in arithmetic_operators(model)
        if int(model.subgraphs[0].operators[position].outputs[0]) not in outputs
    ]
    groups, limit = ChannelGroups(model), FLOAT16_MAX / FLOAT16_MARGIN
    sizes = np.zeros(groups.count)
    by_channel = largest_per_channel(content, first_rows(buckets, _MOST_TEXTS), inner, padding=True)
    for position, largest in by_channel.items():
        labels = groups.of(position)
        if len(labels) == len(largest):
            np.maximum.at(sizes, labels, largest)
    exceeds = groups.movable & np.isfinite(sizes) & (sizes > limit)
    if exceeds.any():
        log_info(f"export: scaled {int(exceeds.sum()):,} channels with activations up to {sizes[exceeds].max():,.0f}")
        scales = np.exp2(-np.ceil(np.log2(np.where(exceeds, sizes / limit, 1.0))))
        content = scale_channels(content, groups, scales)
    operators = model.subgraphs[0].operators
    # The squared differences from the mean.
    squares = {
        position: 2.0 ** -np.ceil(np.log2(float(largest.max()) / limit) / 2)
        for position, largest in by_channel.items()
        if operator_name(model, operators[position]) == "MUL"
        and operators[position].inputs[0] == operators[position].inputs[1]
        and limit < largest.max() < math.inf
    }
    return _scale_layer_norms(content, squares) if squares else content


def _scale_layer_norms(content: bytes, scales: Mapping[int, float]) -> bytes:
    """Scales the differences from the mean inside layer norms; squares outside a layer norm stay as they are.

    With d = x - mean(x), a layer norm computes d / sqrt(mean(d²) + epsilon). Scaled by c = 2^-k, it is (c·d) /
    sqrt(mean((c·d)²) + c²·epsilon). A multiplication by c is inserted; powers of two make the rest exact.
    """
    model = read_model(content)
    editor = GraphEditor(model)
    for graph in model.subgraphs:
        before: dict[int, schema.OperatorT] = {}
        for position, scale in scales.items():
            norm = _layer_norm(model, graph, position)
            if norm is not None:
                before[position] = _scale_layer_norm(editor, graph, graph.operators[position], norm, scale)
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
    """Difference, sum with epsilon and last product in the layer norm around a square."""
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


def _scale_layer_norm(
    editor: GraphEditor,
    graph: schema.SubGraphT,
    square: schema.OperatorT,
    norm: tuple[schema.OperatorT, schema.OperatorT, schema.OperatorT],
    scale: float,
) -> schema.OperatorT:
    """Changes a layer norm's operators; returns the multiplication to run before the square."""
    difference, with_epsilon, product = norm
    plain = int(difference.outputs[0])
    scaled = editor.like(graph, plain, b"/scaled")
    multiplication = editor.multiply(graph, plain, b"layer norm scale", np.array(scale, np.float32), scaled)
    constants = {int(index): editor.values(graph, int(index)) for index in with_epsilon.inputs}
    with_epsilon.inputs = [
        index if values is None else editor.constant(graph, b"epsilon", np.array(values * scale**2, np.float32))
        for index, values in constants.items()
    ]
    square.inputs = [scaled, scaled]
    product.inputs = [scaled if int(index) == plain else index for index in product.inputs]
    return multiplication


def arithmetic_operators(model: schema.ModelT) -> dict[int, str]:
    """Finds operators with outputs possibly larger than their inputs, except the mask: position → description."""
    graph = model.subgraphs[0]
    producers, products = producer_positions(graph), attention_products(model)
    outputs = {int(index) for index in graph.outputs}
    layers: dict[str, int] = {}
    names: dict[int, str] = {}
    masks: set[int] = set()
    sums = {position for position, product in products.items() if product == "logits"}
    masked = {
        producers.get(int(operator.inputs[0]))
        for operator in graph.operators
        if operator_name(model, operator) == "SOFTMAX"
    }
    for position, operator in enumerate(graph.operators):
        tensor = graph.tensors[operator.outputs[0]]
        name = tensor_name(tensor)
        layer = _BLOCK.search(name)
        where = f"layer {layers.setdefault(layer[1], len(layers) + 1)}'s " if layer else ""
        sources = [producers[int(index)] for index in operator.inputs if int(index) in producers]
        if position in masked:
            masks |= {source for source in sources if source not in sums}
            continue
        if operator_name(model, operator) == "ADD" and sums & {*sources}:
            # DeBERTa's logits sum three products.
            sums.add(position)
        if tensor.type != schema.TensorType.FLOAT32 or operator_name(model, operator) in _NO_ARITHMETIC:
            continue
        what = "attention logits" if products.get(position) == "logits" else operator_name(model, operator)
        if outputs & {int(index) for index in operator.outputs}:
            what = "output"
        names[position] = f"{where}{what} {name.rpartition('/encoder')[2].lstrip('_0123456789/') or name}"
    return {position: what for position, what in names.items() if position not in masks}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
