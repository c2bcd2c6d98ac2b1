"""int4 weights in blocks; with calibration texts, layers compensate for their rounding errors.

Layers that share a matrix share its blocks and its rounding, for the inputs of all of them.

Dense layers pay for each block, so they are faster with blocks of 64. The first third keeps the more accurate blocks of
32, because all later layers read its errors. So do embeddings, which only look rows up. DeBERTa's products by distance
have int8 constants.
"""

from __future__ import annotations

import numpy as np

from pocketbert.progress import track
from pocketbert.recipes import Recipe
from pocketbert_export.quantization.block_rounding import pack, round_blocks, round_with_moments
from pocketbert_export.quantization.blockwise import prepare_for_blocks
from pocketbert_export.quantization.calibration import CalibrationTexts, second_moments
from pocketbert_export.quantization.position_tables import round_position_tables
from pocketbert_export.quantization.quantize import INT4_BLOCKS, LayerFormat, first_readers, layers, quantize
from pocketbert_export.quantization.quantizers import QuantizedFile, QuantizerInputs
from pocketbert_export.tflite.graph import GraphEditor, read_model, write_model


def int4_file(content: bytes, recipe: Recipe, inputs: QuantizerInputs) -> QuantizedFile:
    """Quantizes for `dynamic_wi4`."""
    return QuantizedFile(content=quantize_int4(content, inputs.texts), method="gptq")


def quantize_int4(content: bytes, texts: CalibrationTexts | None = None) -> bytes:
    """Quantizes a float32 file's weights; without calibration texts, it rounds each weight on its own."""
    prepared = prepare_for_blocks(content)
    names, readers = layers(prepared), first_readers(prepared)
    dense = [position for position, name in names.items() if name == "FULLY_CONNECTED"]
    by_layer = {} if texts is None else second_moments(prepared, [*texts.measured, *texts.dev], dense)
    moments: dict[int, np.ndarray] = {}
    for position, products in by_layer.items():
        first = readers[position]
        moments[first] = moments[first] + products if first in moments else products
    source = read_model(prepared)
    editor, graph = GraphEditor(source), source.subgraphs[0]
    # ai-edge-quantizer rounds to nearest; this file has its layout and better numbers.
    formats: dict[int, LayerFormat] = dict.fromkeys(names, "dynamic_wi4")
    for position in dense[len(dense) // 3 :]:
        # Blocks of 64 where they need no more padding than blocks of 32.
        if graph.tensors[graph.operators[position].inputs[1]].shape[1] % 64 == 0:
            formats[position] = "dynamic_wi4_64"
    formats = {position: formats[readers[position]] for position in formats}
    quantized = read_model(quantize(prepared, formats))
    target = quantized.subgraphs[0]
    rounded: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for position in track(list(names), "rounding to int4", "layer"):
        size, first = INT4_BLOCKS[formats[position]], readers[position]
        matrix = editor.values(graph, graph.operators[position].inputs[1])
        assert matrix is not None
        if first not in rounded:
            rounded[first] = (
                round_with_moments(matrix, moments[first], size) if first in moments else round_blocks(matrix, size)
            )
        numbers, scales = rounded[first]
        tensor = target.tensors[target.operators[position].inputs[1]]
        stored = target.tensors[tensor.quantization.details.scales]
        quantized.buffers[tensor.buffer].data = np.frombuffer(pack(numbers), np.uint8)
        quantized.buffers[stored.buffer].data = np.frombuffer(scales.tobytes(), np.uint8)
    round_position_tables(quantized)
    return write_model(quantized)
