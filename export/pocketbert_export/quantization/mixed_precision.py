"""Mixed precision: each layer gets a number format by its measured sensitivity.

Every layer starts in int8 (`dynamic_wi8`). A layer's sensitivity is the change in the outputs on calibration texts if
this layer alone has another format: int4 in blocks (`dynamic_wi4`), or float32. Layers with the smallest change per
byte saved become int4 first; layers with the largest change per byte added become float32 first. This gives a path of
files from large and accurate to small. Errors from different layers are nearly independent, so their squares add up, as
in HAWQ (Dong et al. 2019, "HAWQ: Hessian AWare Quantization of Neural Networks with Mixed-Precision"), which estimates
them by the Hessian instead.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info, track
from pocketbert.recipes import Recipe
from pocketbert_export.quantization.blockwise import prepare_for_blocks
from pocketbert_export.quantization.calibration import CalibrationTexts, outputs_of, relative_error
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.int4_quantization import quantize_int4
from pocketbert_export.quantization.quantize import first_readers, quantize
from pocketbert_export.quantization.quantizers import QuantizedFile, QuantizerInputs
from pocketbert_export.quantization.scored_texts import Loss, ScoredTexts
from pocketbert_export.tflite.graph import operator_name, read_model, share_quantization, write_model
from pocketbert_export.tflite.length_buckets import first_rows

WeightFormat = Literal["float32", "int8", "int4"]
# Measured files along the path, besides the limit's own.
_STOPS = 9
# Enough texts to rank layers.
_SENSITIVITY_TEXTS = 16
# At most this part of the layers' weights becomes float32, four times as large as int8.
_MOST_FLOAT = 0.25
_MB = 1e6
# Rounding of a difference between two metrics, in points.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A measured file on the path.

    Attributes:
      size_bytes: the file's size.
      error: root mean square difference from the float file, relative to its outputs, on the dev split.
      loss: loss in the task's metric on the calibration texts; None without labels.
      counts: format → number of layers.
      chosen: whether this file is exported.
    """

    size_bytes: int
    error: float
    loss: Loss | None
    counts: Mapping[WeightFormat, int]
    chosen: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the entry for `precision.json`."""
        return {
            "size_bytes": self.size_bytes,
            "error": self.error,
            "points_lost": self.loss and self.loss.points,
            "points_lost_interval": self.loss and list(self.loss.interval),
            "layers": dict(self.counts),
            "chosen": self.chosen,
        }


def check_limits(options: CalibrationOptions, recipe: Recipe) -> None:
    """Raises a `UserError` unless a mixed recipe has exactly one limit, other recipes none, and it is in range."""
    limits = {argument(name): getattr(options, name) for name in ("max_points_lost", "max_mb")}
    named = [name for name, value in limits.items() if value is not None]
    if len(named) != recipe.chooses_formats:
        remedy = f"pass one, such as {argument('max_mb', 15)}"
        remedy = remedy if recipe.chooses_formats else f"use {argument('recipe', 'mixed')}"
        raise UserError(
            f"{argument('recipe', 'mixed')} takes one of {' and '.join(limits)}, and other recipes take none; received "
            f"{' and '.join(named) or 'none'} with {argument('recipe', recipe.name)}; "
            f"{remedy}"
        )
    for name, value in limits.items():
        if value is not None and not value >= 0:
            raise UserError(f"{name} must be at least 0; received {value}; pass a larger limit")


def check_scorable(options: CalibrationOptions, task: TaskConfig | None, data: LabelledData) -> None:
    """Raises a `UserError` if a limit in points cannot be measured, without a metric or labels."""
    if options.max_points_lost is None:
        return
    if task is None:
        raise UserError(
            f"{argument('max_points_lost')} needs a task with a metric; received a bare encoder; pass "
            f"{argument('max_mb')}"
        )
    if not data.labelled:
        raise UserError(
            f"{argument('max_points_lost')} needs calibration texts with labels; {data.source} has none; add them, or "
            f"pass {argument('max_mb')}"
        )


def mixed_file(content: bytes, recipe: Recipe, inputs: QuantizerInputs) -> QuantizedFile:
    """Quantizes for `mixed`."""
    assert inputs.model.tokenizer is not None and inputs.texts is not None
    scored = ScoredTexts(content, inputs.model.task, inputs.texts.scored, inputs.model.tokenizer, inputs.lengths)
    return quantize_mixed(content, inputs.texts, inputs.options, scored)


def quantize_mixed(
    content: bytes, texts: CalibrationTexts, options: CalibrationOptions, scored: ScoredTexts
) -> QuantizedFile:
    """Chooses a format for each layer in a float32 file.

    Returns the most accurate file within `max_mb`, or the smallest measured one with its interval's upper end within
    `max_points_lost`. Raises a `UserError` if no file on the path meets the limit.
    """
    parts = _Parts(content, texts)
    path = _path(parts, texts)
    expected = outputs_of(content, texts.dev)

    def measure(index: int) -> FrontPoint:
        mixed = parts.compose(path[index])
        formats = list(path[index].values())
        return FrontPoint(
            size_bytes=len(share_quantization(mixed)),
            error=relative_error(expected, outputs_of(mixed, texts.dev)),
            loss=scored.loss(mixed),
            counts={form: formats.count(form) for form in ("float32", "int8", "int4")},
        )

    stops = sorted({0, *np.linspace(0, len(path) - 1, _STOPS).round().astype(int).tolist()})
    if options.max_mb is not None:
        fitting = _first_within(parts, path, options.max_mb * _MB)
        stops = sorted({*stops, fitting})
    measured = {index: measure(index) for index in track(stops, "measuring mixed files", "file")}
    if options.max_mb is not None:
        chosen = fitting
    else:
        assert options.max_points_lost is not None
        lost = {index: point.loss for index, point in measured.items() if point.loss is not None}
        good = [index for index, loss in lost.items() if loss.interval[1] <= options.max_points_lost + _ROUNDING]
        if not good:
            best = min(lost.values(), key=lambda loss: loss.interval[1])
            raise UserError(
                f"{argument('max_points_lost', options.max_points_lost)} must be within reach; the best mixed file "
                f"loses {best.points:.2f} points on {scored.count:,} calibration texts, and {best.interval[1]:.2f} at "
                f"the upper end of the 95 % interval; pass more {argument('calibration_examples')}, raise the limit, "
                f"or use {argument('recipe', 'float16')}"
            )
        chosen = max(good)
    point = measured[chosen]
    log_info(
        f"mixed: {point.size_bytes / _MB:.1f} MB, "
        + ", ".join(f"{count} layers in {form}" for form, count in point.counts.items() if count)
    )
    front = [replace(point, chosen=index == chosen) for index, point in measured.items()]
    content = share_quantization(parts.compose(path[chosen]))
    return QuantizedFile(content=content, method="sensitivity", front=front)


class _Parts:
    """The same graph with all layers in int4, int8 and float32, to compose files from; no format adds operators."""

    def __init__(self, content: bytes, texts: CalibrationTexts) -> None:
        prepared = prepare_for_blocks(content)
        readers = first_readers(prepared)
        # One for each matrix; layers that share it change together.
        self.positions = list(dict.fromkeys(readers.values()))
        self._sharing = {
            first: [position for position in readers if readers[position] == first] for first in self.positions
        }
        self._int4 = quantize_int4(content, texts)
        self._others: dict[str, schema.ModelT] = {
            "float32": read_model(prepared),
            "int8": read_model(quantize(prepared, dict.fromkeys(readers, "dynamic_wi8"))),
        }
        models = {**self._others, "int4": read_model(self._int4)}
        self.bytes = {form: {p: _size(model, p) for p in self.positions} for form, model in models.items()}

    def compose(self, formats: Mapping[int, WeightFormat]) -> bytes:
        """The file with a format for each layer."""
        model = read_model(self._int4)
        placed: set[int] = set()
        changes = [(first, position) for first in formats for position in self._sharing[first]]
        for first, position in changes:
            if formats[first] == "int4":
                continue
            source = self._others[formats[first]]
            for graph, other in zip(model.subgraphs, source.subgraphs, strict=True):
                tensor = graph.tensors[_matrix(model, graph, position)]
                replacement = other.tensors[_matrix(source, other, position)]
                if not isinstance(tensor.quantization.details, schema.BlockwiseQuantizationT):
                    # Another layer reads the same tensor.
                    continue
                scales = graph.tensors[tensor.quantization.details.scales]
                model.buffers[scales.buffer].data = None
                if tensor.buffer not in placed:
                    model.buffers[tensor.buffer].data = source.buffers[replacement.buffer].data
                    placed.add(tensor.buffer)
                tensor.type, tensor.quantization = replacement.type, copy.copy(replacement.quantization)
        return write_model(model)


def _size(model: schema.ModelT, position: int) -> int:
    """Bytes in a layer's matrix, without its scales."""
    graph = model.subgraphs[0]
    return len(model.buffers[graph.tensors[_matrix(model, graph, position)].buffer].data)


def _matrix(model: schema.ModelT, graph: schema.SubGraphT, position: int) -> int:
    operator = graph.operators[position]
    assert operator_name(model, operator) in ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")
    return int(operator.inputs[1])


def _path(parts: _Parts, texts: CalibrationTexts) -> list[dict[int, WeightFormat]]:
    """All layers' formats, from the largest to the smallest file."""
    start: dict[int, WeightFormat] = dict.fromkeys(parts.positions, "int8")
    buckets = first_rows(texts.dev, _SENSITIVITY_TEXTS)
    expected = outputs_of(parts.compose(start), buckets)
    changes: dict[WeightFormat, dict[int, float]] = {"float32": {}, "int4": {}}
    for position in track(parts.positions, "sensitivity of layers", "layer"):
        for form, form_changes in changes.items():
            outputs = outputs_of(parts.compose({**start, position: form}), buckets)
            saved = abs(parts.bytes[form][position] - parts.bytes["int8"][position])
            form_changes[position] = relative_error(expected, outputs) ** 2 / saved
    widened, path = dict(start), [start]
    budget = _MOST_FLOAT * sum(parts.bytes["int8"].values())
    for position in sorted(parts.positions, key=lambda position: -changes["float32"][position]):
        budget -= parts.bytes["int8"][position]
        if budget < 0:
            break
        widened = {**widened, position: "float32"}
        path.insert(0, widened)
    narrowed = start
    for position in sorted(parts.positions, key=lambda position: changes["int4"][position]):
        narrowed = {**narrowed, position: "int4"}
        path.append(narrowed)
    return path


def _first_within(parts: _Parts, path: Sequence[Mapping[int, WeightFormat]], most: float) -> int:
    """Index of the largest file within a number of bytes."""
    smallest = len(share_quantization(parts.compose(path[-1])))
    if smallest > most:
        raise UserError(
            f"{argument('max_mb', float(f'{most / _MB:g}'))} must be within reach; with int4 in all layers, the file "
            f"has {smallest / _MB:.3g} MB; raise the limit, or train a smaller student"
        )
    low, high = 0, len(path) - 1
    while low < high:
        middle = (low + high) // 2
        if len(share_quantization(parts.compose(path[middle]))) <= most:
            high = middle
        else:
            low = middle + 1
    return low
