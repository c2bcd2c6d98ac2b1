"""int4 weights in blocks; with calibration texts, layers compensate for their rounding errors."""

from __future__ import annotations

import numpy as np

from pocketbert.progress import track
from pocketbert_export.block_rounding import pack, round_blocks, round_with_moments
from pocketbert_export.blockwise import block_size, prepare_for_blocks
from pocketbert_export.calibration import CalibrationTexts, second_moments
from pocketbert_export.quantize import layers, quantize
from pocketbert_export.tflite_graph import GraphEditor, read_model, write_model


def quantize_int4(content: bytes, texts: CalibrationTexts | None = None) -> bytes:
    """Quantizes the weights of a float file.

    Args:
      content: content of a float32 `.tflite` file with the same operators in every signature.
      texts: calibration texts; None rounds each weight on its own.
    Returns:
      The quantized file.
    """
    prepared = prepare_for_blocks(content)
    found = layers(prepared)
    dense = [position for position, name in found.items() if name == "FULLY_CONNECTED"]
    moments = {} if texts is None else second_moments(prepared, [*texts.measured, *texts.dev], dense)
    source = read_model(prepared)
    editor, graph = GraphEditor(source), source.subgraphs[0]
    # ai-edge-quantizer rounds to nearest; this file has its layout and better numbers.
    quantized = read_model(quantize(prepared, dict.fromkeys(found, "dynamic_wi4")))
    target = quantized.subgraphs[0]
    for position in track(list(found), "rounding to int4", "layer"):
        matrix = editor.values(graph, graph.operators[position].inputs[1])
        assert matrix is not None
        known = moments.get(position)
        size = block_size(found[position], matrix.shape[1])
        numbers, scales = round_blocks(matrix, size) if known is None else round_with_moments(matrix, known, size)
        tensor = target.tensors[target.operators[position].inputs[1]]
        stored = target.tensors[tensor.quantization.details.scales]
        quantized.buffers[tensor.buffer].data = np.frombuffer(pack(numbers), np.uint8)
        quantized.buffers[stored.buffer].data = np.frombuffer(scales.tobytes(), np.uint8)
    return write_model(quantized)
