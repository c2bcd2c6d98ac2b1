"""Equalization: scales of single channels move out of activations, so that they share one int8 range without loss.

Static int8 has one range per tensor. In BERT's feed-forward outputs, a single channel may be much larger than all
others, which then lose their bits. Here the weights of each channel are multiplied
by a power of two, which per-channel quantization of weights absorbs, and a multiplication behind the layer divides by
it. Powers of two make this exact in float arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pocketbert_export.per_tensor import multiply_output
from pocketbert_export.tflite_graph import GraphEditor, drop_unused, read_model, write_model

# A layer is equalized if its largest channel is this many times the median one, which otherwise has 6 of 8 bits.
_UNEQUAL = 4.0


def unequal_layers(largest: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Selects the layers whose channels differ much in size.

    Args:
      largest: position of a layer → largest absolute output of each channel.
    """
    return {
        position: sizes
        for position, sizes in largest.items()
        if np.any(sizes > 0) and float(sizes.max()) > _UNEQUAL * float(np.median(sizes[sizes > 0]))
    }


def equalize_outputs(content: bytes, largest: Mapping[int, np.ndarray]) -> bytes:
    """Equalizes the outputs of dense layers.

    Args:
      content: content of a float file with the same operators in every signature.
      largest: position of a FULLY_CONNECTED → largest absolute output of each channel.
    Returns:
      Content of a file that computes the same outputs, bit for bit.
    """
    model = read_model(content)
    editor = GraphEditor(model)
    factors = {position: _factors(sizes) for position, sizes in largest.items()}
    for graph in model.subgraphs:
        kernels = {position: editor.values(graph, graph.operators[position].inputs[1]) for position in factors}
        operators = []
        for position, operator in enumerate(graph.operators):
            operators.append(operator)
            kernel = kernels.get(position)
            if kernel is not None:
                product = multiply_output(editor, graph, operator, factors[position])
                name = graph.tensors[operator.inputs[1]].name
                scaled = editor.constant(graph, name, kernel / factors[position][:, None])
                operator.inputs = [operator.inputs[0], scaled, *operator.inputs[2:]]
                operators.append(product)
        graph.operators = operators
    drop_unused(model)
    return write_model(model)


def _factors(sizes: np.ndarray) -> np.ndarray:
    """Power of two per channel that leaves each largest value in the upper half of the common range, at most 1."""
    share = np.where(sizes > 0, sizes / sizes.max(), 1.0)
    return np.exp2(np.ceil(np.log2(share))).astype(np.float32)
