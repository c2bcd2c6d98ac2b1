"""Quantize a float `.tflite` file with ai-edge-quantizer, each layer in its own format.

All files in this package have the same operators in every signature.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import numpy as np

from pocketbert.processes import stderr_on_failure
from pocketbert_export.quantization.blockwise import FEWEST_QUANTIZED
from pocketbert_export.quantization.calibration import Ranges
from pocketbert_export.recipes import BLOCK_SIZE
from pocketbert_export.tflite.graph import code_name, operator_name, read_model, write_model
from pocketbert_export.tflite.op_histogram import INT4_VERSIONS

LayerFormat = Literal["float", "dynamic_wi8", "dynamic_wi4", "dynamic_wi4_64", "static_wi8_ai8", "static_wi8_ai16"]
# int4 formats → weights in a block.
INT4_BLOCKS: dict[LayerFormat, int] = {"dynamic_wi4": BLOCK_SIZE, "dynamic_wi4_64": 64}
# Formats with fixed ranges → bits in their activations.
STATIC_BITS: dict[LayerFormat, int] = {"static_wi8_ai8": 8, "static_wi8_ai16": 16}
# Operators with a matrix, and its position among their inputs.
_MATRIX = {"FULLY_CONNECTED": 1, "EMBEDDING_LOOKUP": 1, "GATHER": 0}
# Ends the prefix that `quantize` adds to names.
_END = "!"


def layers(content: bytes) -> dict[int, str]:
    """Finds layers with a matrix worth quantizing in a float file: position → the operator's name."""
    model = read_model(content)
    graphs = [[operator_name(model, operator) for operator in graph.operators] for graph in model.subgraphs]
    assert all(names == graphs[0] for names in graphs), "signatures must have the same operators"
    first = model.subgraphs[0]
    layers = {}
    for position, operator in enumerate(first.operators):
        name = graphs[0][position]
        if name in _MATRIX:
            matrix = first.tensors[operator.inputs[_MATRIX[name]]]
            if model.buffers[matrix.buffer].data is not None and np.prod(matrix.shape) >= FEWEST_QUANTIZED:
                layers[position] = name
    return layers


def first_readers(content: bytes) -> dict[int, int]:
    """Returns, for each of a float file's `layers`, the first one with the same matrix: itself, unless layers share."""
    graph = read_model(content).subgraphs[0]
    first: dict[int, int] = {}
    return {
        position: first.setdefault(int(graph.tensors[graph.operators[position].inputs[_MATRIX[name]]].buffer), position)
        for position, name in layers(content).items()
    }


def quantize(content: bytes, formats: Mapping[int, LayerFormat], ranges: Ranges | None = None) -> bytes:
    """Quantizes layers; returns the file's new content.

    Args:
      content: content of a float `.tflite` file with the same operators in every signature.
      formats: position of an operator in its graph → its format. Dynamic formats are for `layers`.
      ranges: ranges for all activations that static operators read and write.
    """
    if not set(formats.values()) - {"float"}:
        return content
    # Imports the calibrator and with it a second interpreter.
    from ai_edge_quantizer import qtyping
    from ai_edge_quantizer.quantizer import Quantizer

    model = read_model(content)
    statistics = {}
    for number, graph in enumerate(model.subgraphs):
        # ai-edge-quantizer needs different names for all tensors, and selects operators by their outputs' names.
        form_of = {
            int(output): form for position, form in formats.items() for output in graph.operators[position].outputs
        }
        for index, tensor in enumerate(graph.tensors):
            tensor.name = f"{form_of.get(index, 'float')} {number} {index}{_END}".encode() + bytes(tensor.name)
        for position, limits in (ranges or {}).items():
            for index in graph.operators[position].outputs:
                tensor = graph.tensors[index]
                sizes = [1] * len(tensor.shape)
                low, high = (np.full(sizes, limit, np.float32) for limit in limits)
                statistics[tensor.name.decode()] = {"min": low, "max": high}
    quantizer = Quantizer(write_model(model))
    names = qtyping.TFLOperationName
    for form in sorted(set(formats.values()) - {"float"}):
        if form in STATIC_BITS:
            first = model.subgraphs[0]
            used = {
                operator_name(model, first.operators[position]) for position in formats if formats[position] == form
            }
            for name in sorted(used):
                quantizer.add_static_config(
                    f"^{form} ", names(name), activation_num_bits=STATIC_BITS[form], weight_num_bits=8
                )
            continue
        size = INT4_BLOCKS.get(form)
        bits, granularity = (8, "CHANNELWISE") if size is None else (4, f"BLOCKWISE_{size}")
        for operator in (names.FULLY_CONNECTED, names.EMBEDDING_LOOKUP):
            quantizer.add_dynamic_config(f"^{form} ", operator, bits, qtyping.QuantGranularity[granularity])
    with stderr_on_failure(), _quiet():
        quantized = quantizer.quantize(
            statistics or None, enable_progress_bar=False, enable_progress_report=False
        ).quantized_model
    return _finish(bytes(quantized), has_float_inputs=any(form.startswith("dynamic") for form in formats.values()))


def _finish(content: bytes, *, has_float_inputs: bool) -> bytes:
    """Restores the names, and records the operator versions for quantized weights with float inputs."""
    model = read_model(content)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.name = bytes(tensor.name).partition(_END.encode())[2]
    for code in model.operatorCodes:
        if not has_float_inputs:
            break
        # ai-edge-quantizer keeps the float file's versions; old runtimes would return wrong outputs.
        code.version = max(code.version, INT4_VERSIONS.get(code_name(code), 1))
    return write_model(model)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings about weights shared by several signatures."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
