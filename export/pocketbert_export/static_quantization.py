"""Static int8: activations have fixed ranges from calibration texts, as NPUs require.

Dense layers and the lookup of embeddings compute in int8. Everything else stays float32: int8 norms and int8 matrix
products of attention are slow on CPUs and cost accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_export.calibration import (
    FEWEST_TEXTS,
    METHODS,
    ActivationHistograms,
    CalibrationTexts,
    RangeMethod,
    Ranges,
    TensorKey,
    largest_per_channel,
    outputs_of,
    relative_error,
)
from pocketbert_export.calibration_options import CalibrationOptions
from pocketbert_export.equalization import equalize_outputs, unequal_layers
from pocketbert_export.quantize import layers, quantize
from pocketbert_export.tflite_graph import GraphEditor, read_model


@dataclass(frozen=True, kw_only=True)
class CalibratedFile:
    """A quantized file and its calibration.

    Attributes:
      content: content of the file.
      method: method of the ranges.
      dev_error: root mean square difference from the float file on the dev split, relative to its outputs.
    """

    content: bytes
    method: RangeMethod
    dev_error: float


def check_options(options: CalibrationOptions) -> None:
    """Checks the options.

    Raises:
      UserError: too few calibration texts.
    """
    if options.calibration_examples < FEWEST_TEXTS:
        raise UserError(
            f"--calibration-examples must be at least {FEWEST_TEXTS}; received {options.calibration_examples}; the "
            "default is 256"
        )


def quantize_static(
    content: bytes,
    texts: CalibrationTexts,
    options: CalibrationOptions = CalibrationOptions(),  # noqa: B008
) -> CalibratedFile:
    """Calibrates and quantizes a float file.

    Args:
      content: content of a float32 `.tflite` file with the same operators in every signature.
      texts: calibration texts.
      options: method of the ranges, and equalization.
    Returns:
      The quantized file.
    """
    if options.equalize:
        dense = [position for position, name in layers(content).items() if name == "FULLY_CONNECTED"]
        unequal = unequal_layers(largest_per_channel(content, texts.measured, dense))
        content = equalize_outputs(content, unequal)
        log_info(f"calibration: equalized the outputs of {len(unequal)} of {len(dense)} dense layers")
    quantized = layers(content)
    keys: list[TensorKey] = []
    for position, name in quantized.items():
        if name == "FULLY_CONNECTED":
            keys += [(position, "input"), (position, "output")]
    histograms = ActivationHistograms(content, texts.measured, keys)
    tables = _table_ranges(content, [position for position, name in quantized.items() if name == "GATHER"])
    expected = outputs_of(content, texts.dev)
    methods = METHODS if options.calibration_ranges == "auto" else (options.calibration_ranges,)
    tried = []
    for method in methods:
        made = quantize(content, dict.fromkeys(quantized, "static_wi8_ai8"), histograms.ranges(method) | tables)
        error = relative_error(expected, outputs_of(made, texts.dev))
        log_info(f"calibration: {method} ranges give a relative error of {error:.3f} on the dev split")
        tried.append(CalibratedFile(content=made, method=method, dev_error=error))
    return min(tried, key=lambda each: each.dev_error)


def _table_ranges(content: bytes, positions: list[int]) -> Ranges:
    """Ranges of embedding tables, which are those of their rows."""
    model = read_model(content)
    editor, graph = GraphEditor(model), model.subgraphs[0]
    found: Ranges = {}
    for position in positions:
        table = editor.values(graph, graph.operators[position].inputs[0])
        assert table is not None
        found[position, "input"] = found[position, "output"] = (float(table.min()), float(table.max()))
    return found
