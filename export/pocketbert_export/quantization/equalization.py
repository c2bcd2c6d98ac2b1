"""Equalization: single channels' scales move out of activations, so that all share one int8 range without loss.

Static int8 has one range per tensor. In BERT's feed-forward outputs, a single channel may be much larger than all
others, which then lose their bits. Here each channel's weights are multiplied by a power of two, absorbed by
per-channel quantization, and a multiplication behind the layer divides by it. Powers of two make this exact in float
arithmetic.

GELU's outputs have large channels, too. A multiplication behind GELU divides by the power of two, and the next layer's
weights for this input are multiplied by it. These weights share a scale per output, so only the factor's root moves, as
in SmoothQuant (Xiao et al. 2023, eq. 4 with α = 0.5). Small channels keep room for other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pocketbert_export.quantization.per_tensor import multiply_output
from pocketbert_export.quantization.quantize import first_readers, layers
from pocketbert_export.tflite.graph import GraphEditor, drop_unused, operator_name, read_model, write_model

_DENSE = "FULLY_CONNECTED"

# An activation is equalized if its largest channel is so many times the median one, which otherwise has 6 of 8 bits.
_UNEQUAL = 4.0
# The same for dense layers' inputs; their weights pay for it.
UNEQUAL_INPUTS = 8.0


def unequal(largest: Mapping[int, np.ndarray], ratio: float = _UNEQUAL) -> dict[int, np.ndarray]:
    """Selects the activations with a largest channel above `ratio` times the median one."""
    return {
        position: sizes
        for position, sizes in largest.items()
        if np.any(sizes > 0) and float(sizes.max()) > ratio * float(np.median(sizes[sizes > 0]))
    }


def joined(content: bytes, largest: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Gives dense layers with the same weights, and the inputs of such layers, the largest outputs of all of them.

    Their weights then stay the same, and the file stores them once.
    """
    graph, first = read_model(content).subgraphs[0], first_readers(content)
    readers = {int(graph.operators[position].inputs[0]): position for position in reversed([*first])}

    def key(position: int) -> tuple[bool, int]:
        if position in first:
            return True, first[position]
        return False, first[readers[int(graph.operators[position].outputs[0])]]

    by_key: dict[tuple[bool, int], np.ndarray] = {}
    for position, sizes in largest.items():
        by_key[key(position)] = np.maximum(by_key.get(key(position), 0.0), sizes)
    return {position: by_key[key(position)] for position in largest}


def lone_inputs(content: bytes) -> list[int]:
    """Finds operators such as GELU: static files read their float outputs in int8 dense layers alone."""
    model = read_model(content)
    graph = model.subgraphs[0]
    outputs = set(map(int, graph.outputs))
    quantized = layers(content)
    readers: dict[int, list[int]] = {}
    for position, operator in enumerate(graph.operators):
        for index in operator.inputs:
            readers.setdefault(int(index), []).append(position)

    def reads_channels(position: int, index: int) -> bool:
        # A dense layer may read several axes as one.
        return quantized.get(position) == _DENSE and (
            graph.tensors[graph.operators[position].inputs[1]].shape[-1] == graph.tensors[index].shape[-1]
        )

    inputs = []
    for position, operator in enumerate(graph.operators):
        written = int(operator.outputs[0])
        if operator_name(model, operator) in (_DENSE, "GATHER") or len(operator.outputs) > 1 or written in outputs:
            continue
        if written in readers and all(reads_channels(reader, written) for reader in readers[written]):
            inputs.append(position)
    return inputs


def equalize(content: bytes, largest: Mapping[int, np.ndarray]) -> bytes:
    """Equalizes dense layers' outputs, and activations read by dense layers alone; the outputs stay equal, bit for bit.

    Args:
      content: content of a float file with the same operators in every signature.
      largest: position of a FULLY_CONNECTED, or one from `lone_inputs` → each channel's largest absolute output.
    """
    model = read_model(content)
    editor = GraphEditor(model)
    names = [operator_name(model, operator) for operator in model.subgraphs[0].operators]
    factors: dict[int, np.ndarray] = {}
    for position, sizes in largest.items():
        # A power of two per channel, at most 1: the share of the largest channel, to the exponent, rounded up.
        share, exponent = np.where(sizes > 0, sizes / sizes.max(), 1.0), 1.0 if names[position] == _DENSE else 0.5
        factors[position] = np.exp2(np.ceil(exponent * np.log2(share))).astype(np.float32)
    for graph in model.subgraphs:
        operators: list[Any] = []
        # Activation → its equalized form, and the factors for its readers' weights.
        equalized: dict[int, tuple[int, np.ndarray]] = {}
        for position, operator in enumerate(graph.operators):
            operators.append(operator)
            own_factors = factors.get(position)
            if names[position] != _DENSE:
                if own_factors is not None:
                    source = int(operator.outputs[0])
                    multiplication, product = editor.scaled(graph, source, 1 / own_factors)
                    operators.append(product)
                    equalized[source] = multiplication, own_factors
                continue
            source, of_inputs = equalized.get(int(operator.inputs[0]), (operator.inputs[0], None))
            kernel = editor.values(graph, operator.inputs[1])
            if kernel is None or (own_factors is None and of_inputs is None):
                continue
            name = graph.tensors[operator.inputs[1]].name
            if of_inputs is not None:
                kernel = kernel * of_inputs
            if own_factors is not None:
                kernel = kernel / own_factors[:, None]
                operators.append(multiply_output(editor, graph, operator, own_factors))
            operator.inputs = [source, editor.constant(graph, name, kernel), *operator.inputs[2:]]
        graph.operators = operators
    drop_unused(model)
    return write_model(model)
