"""Calibration: activation ranges in a float file, for static quantization.

The file runs on calibration texts, each in the shortest signature that fits, and only real tokens count.
ai-edge-quantizer's own calibration averages the ranges over successive texts and includes padding.

Three methods turn a tensor's values into a range:

- `min_max`: all values.
- `percentile`: all but one value in 20,000 on each side.
- `mse`: the range with the smallest mean squared rounding error over a histogram.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pocketbert.data.examples import Examples, LabelledData
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.processes import stderr_on_failure
from pocketbert.progress import log_info
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_export.checks.outputs import real_values
from pocketbert_export.tflite.graph import AttentionProduct, attention_products, producer_positions, read_model
from pocketbert_runtime.bundles.description import signature_name
from pocketbert_runtime.bundles.length_buckets import LengthBucket, bucket_by_length

RangeMethod = Literal["min_max", "percentile", "mse"]
METHODS: tuple[RangeMethod, ...] = ("min_max", "percentile", "mse")
FEWEST_TEXTS = 32
# One in four texts chooses the method.
_DEV_SHARE = 4
_BINS = 2048
_OUTSIDE = 1 / 20_000
# Position of an operator in its graph → range of its outputs.
Ranges = dict[int, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class CalibrationTexts:
    """Tokenized calibration texts.

    Attributes:
      measured: texts for the ranges, by length.
      dev: texts to choose between the methods, by length.
      data: all texts, with their labels if known.
      digest: SHA-256 of the texts.
      scored: texts or pairs for the task's metric.
    """

    measured: Sequence[LengthBucket]
    dev: Sequence[LengthBucket]
    data: LabelledData
    digest: str
    scored: LabelledData

    def record(self, method: str) -> dict[str, Any]:
        """Returns the entry for `bundle.json`, with the method that used the texts."""
        return {"texts": len(self.data), "sha256": self.digest, "method": method}


def choose_texts(
    data: LabelledData,
    gate: LabelledData | None,
    tokenizer: Tokenizer,
    lengths: Sequence[int],
    *,
    most: int = 256,
    seed: int = 0,
    scored: LabelledData | None = None,
) -> CalibrationTexts:
    """Draws calibration texts and tokenizes them.

    Args:
      data: calibration texts; labels are not read.
      gate: the verification gate's examples, which are left out.
      tokenizer: the model's tokenizer.
      lengths: the file's sequence lengths; longer texts are truncated to the longest.
      most: number of texts to draw.
      seed: seed for the draw.
      scored: texts or pairs for the task's metric; None for the drawn ones.
    Raises:
      UserError: fewer than `FEWEST_TEXTS` texts, without the gate's.
    """
    texts, places = _texts(data), drawn_places(data, gate, most, seed)
    shared = {*texts} & ({*_texts(gate)} if gate is not None else set())
    if shared:
        log_info(f"calibration: left out {len(shared):,} texts that the gate uses")
    chosen = [texts[position] for position in places]
    pairs = None if chosen[0][1] is None else [pair or "" for _, pair in chosen]
    encoded = tokenizer([text for text, _ in chosen], pairs, max_length=max(lengths))
    inputs = {name: np.asarray(encoded[name]) for name in INPUT_NAMES}
    is_dev = np.arange(len(chosen)) % _DEV_SHARE == 0
    measured, dev = (
        bucket_by_length({name: rows[part] for name, rows in inputs.items()}, lengths, tokenizer.pad_token_id)
        for part in (~is_dev, is_dev)
    )
    digest = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()
    drawn = data.select(places)
    return CalibrationTexts(measured=measured, dev=dev, data=drawn, digest=digest, scored=scored or drawn)


def drawn_places(data: LabelledData, gate: LabelledData | None, most: int, seed: int = 0) -> list[int]:
    """Draws positions from the usable texts; raises a `UserError` as `usable_texts` does."""
    usable = usable_texts(data, gate)
    return [usable[index] for index in np.random.default_rng(seed).permutation(len(usable))[:most]]


def usable_texts(data: LabelledData, gate: LabelledData | None) -> list[int]:
    """Returns positions of different texts outside the gate; raises a `UserError` if fewer than `FEWEST_TEXTS`."""
    texts, taken = _texts(data), set() if gate is None else set(_texts(gate))
    # The same text twice tells nothing new.
    first = {text: index for index, text in reversed(list(enumerate(texts)))}
    usable = sorted(index for text, index in first.items() if text not in taken)
    if len(usable) < FEWEST_TEXTS:
        shared = len(first) - len(usable)
        raise UserError(
            f"calibration needs at least {FEWEST_TEXTS} different texts that the gate does not use; {data.source} has "
            f"{len(usable)}{f', and {shared} that the gate uses' if shared else ''}; pass a file with more texts"
        )
    return usable


def largest_per_channel(
    content: bytes, buckets: Sequence[LengthBucket], positions: Sequence[int], *, padding: bool = False
) -> dict[int, np.ndarray]:
    """Finds each channel's largest absolute output from a float file's operators, on real tokens or with padding, too.

    Position → float32 `[channels]`, NaN if a value is NaN; `[1]` if the last axis counts tokens.
    """
    by_position: dict[int, np.ndarray] = {}
    for position, values in _activations(content, buckets, positions, padding=padding):
        largest, before = np.abs(values).max(axis=0), by_position.get(position)
        if before is not None and before.shape != largest.shape:
            largest, before = largest.max(keepdims=True), before.max(keepdims=True)
        by_position[position] = largest if before is None else np.maximum(before, largest)
    return by_position


def root_mean_squares(
    content: bytes, buckets: Sequence[LengthBucket], positions: Sequence[int]
) -> dict[int, np.ndarray]:
    """Returns, by position, each channel's root mean square in the inputs to a float file's dense layers."""
    source_of = _sources(content, positions)
    sums: dict[int, np.ndarray] = {}
    counts: dict[int, int] = {}
    for source, values in _activations(content, buckets, list(dict.fromkeys(source_of.values()))):
        sums[source] = sums.get(source, 0.0) + np.square(values, dtype=np.float64).sum(axis=0)
        counts[source] = counts.get(source, 0) + len(values)
    return {position: np.sqrt(sums[source] / counts[source]) for position, source in source_of.items()}


def second_moments(content: bytes, buckets: Sequence[LengthBucket], positions: Sequence[int]) -> dict[int, np.ndarray]:
    """Sums products between dense layers' inputs over all tokens.

    Position → float64 `[inputs, inputs]`; layers with the same input share an array.
    """
    source_of = _sources(content, positions)
    moments: dict[int, np.ndarray] = {}
    for source, values in _activations(content, buckets, list(dict.fromkeys(source_of.values()))):
        moments[source] = moments.get(source, 0.0) + (values.T @ values).astype(np.float64)
    return {position: moments[source] for position, source in source_of.items()}


class ActivationHistograms:
    """Histograms of operators' outputs over the texts' real tokens. The texts run twice: for limits, and for counts."""

    def __init__(self, content: bytes, buckets: Sequence[LengthBucket], positions: Sequence[int]) -> None:
        # Every range contains 0, because padding and relu need it exactly.
        self._limits: Ranges = dict.fromkeys(positions, (0.0, 0.0))
        self._squares: dict[int, np.ndarray] = {}
        for position, values in _activations(content, buckets, positions):
            low, high = self._limits[position]
            self._limits[position] = min(low, float(values.min())), max(high, float(values.max()))
            self._squares[position] = self._squares.get(position, 0.0) + np.square(values, dtype=np.float64).sum(axis=0)
        self._counts = {position: np.zeros(_BINS, np.int64) for position in positions}
        for position, values in _activations(content, buckets, positions):
            self._counts[position] += np.histogram(values, bins=_BINS, range=self._limits[position])[0]

    def ranges(self, method: RangeMethod, levels: int = 256) -> Ranges:
        """Returns the range for each operator's outputs with `levels` quantized values."""
        if method == "min_max":
            return dict(self._limits)
        pick = percentile_range if method == "percentile" else least_error_range
        return {position: pick(self._counts[position], *limits, levels) for position, limits in self._limits.items()}

    def rounding_errors(self, ranges: Ranges) -> dict[int, float]:
        """Relates RMS int8 rounding errors to the median channel: a few large channels must not hide others' losses."""
        errors = {}
        for position, limits in self._limits.items():
            squares, counts = self._squares[position], self._counts[position]
            median = float(np.median(squares)) * len(squares)
            error = _rounding_error(counts, limits, ranges[position]) * float(squares.sum())
            errors[position] = float(np.sqrt(error / median)) if median else 0.0
        return errors


def _sources(content: bytes, positions: Sequence[int]) -> dict[int, int]:
    """Position of a dense layer → position of the operator that writes its input."""
    graph = read_model(content).subgraphs[0]
    producers = producer_positions(graph)
    return {position: producers[int(graph.operators[position].inputs[0])] for position in positions}


def _texts(data: LabelledData) -> list[tuple[str, str | None]]:
    examples: Examples = data.first_texts(len(data))
    if examples.pairs is None:
        return [(text, None) for text in examples.texts]
    return list(zip(examples.texts, examples.pairs, strict=True))


def _activations(
    content: bytes, buckets: Sequence[LengthBucket], positions: Sequence[int], *, padding: bool = False
) -> Iterator[tuple[int, np.ndarray]]:
    """Runs the texts one by one; yields operators' first outputs at real tokens or everywhere, `[values, channels]`."""
    from ai_edge_litert.interpreter import Interpreter

    model = read_model(content)
    with warnings.catch_warnings(), stderr_on_failure():
        # About the memory for all intermediate tensors.
        warnings.simplefilter("ignore")
        interpreter = Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    graphs = {signature.signatureKey.decode(): signature.subgraphIndex for signature in model.signatureDefs}
    products = attention_products(model)
    for bucket in buckets:
        name = signature_name(bucket.length)
        runner, graph = interpreter.get_signature_runner(name), graphs[name]
        operators = model.subgraphs[graph].operators
        for row in range(len(bucket.indices)):
            inputs = {name: rows[row : row + 1] for name, rows in bucket.inputs.items()}
            runner(**inputs)
            count = bucket.length if padding else int(inputs["input_mask"].sum())
            for position in positions:
                values = interpreter.get_tensor(int(operators[position].outputs[0]), graph)
                yield position, _without_padding(values, bucket.length, count, products.get(position))


def _without_padding(values: np.ndarray, length: int, count: int, product: AttentionProduct | None) -> np.ndarray:
    """Values at the first tokens, also in attention logits `[1, heads, queries, keys]` and contexts."""
    if product is None:
        rows = values.reshape(-1, values.shape[-1])
        # A classifier's last layer has one row.
        return rows[:count] if len(rows) == length else rows
    queries = values[:, :, :count] if values.shape[2] == length else values
    # A dense layer may read a context, with channels.
    return queries[..., :count].reshape(-1, 1) if product == "logits" else queries.reshape(-1, values.shape[-1])


def percentile_range(counts: np.ndarray, low: float, high: float, levels: int = 256) -> tuple[float, float]:
    """Returns a histogram's range without the outermost values on either side; see `least_error_range`."""
    edges, share = np.linspace(low, high, len(counts) + 1), np.cumsum(counts) / counts.sum()
    first, last = np.searchsorted(share, [_OUTSIDE, 1 - _OUTSIDE])
    return min(float(edges[first]), 0.0), max(float(edges[last + 1]), 0.0)


def least_error_range(counts: np.ndarray, low: float, high: float, levels: int = 256) -> tuple[float, float]:
    """Searches the range with the smallest squared error in a histogram; both ends shrink independently.

    The bins have equal width, from `low`, at most 0, to `high`, at least 0. There are `levels` quantized values.
    """
    shares = np.linspace(0.05, 1.0, 39)
    best = (np.inf, low, high)
    # One end, then the other, then both again: the error is nearly separable.
    tried = {"low": 1.0, "high": 1.0}
    for end in ("low", "high", "low", "high"):
        for share in shares:
            trial = {**tried, end: share}
            start, stop = low * trial["low"], high * trial["high"]
            if stop - start <= 0:
                continue
            error = _rounding_error(counts, (low, high), (start, stop), levels)
            if error < best[0]:
                best, tried = (error, start, stop), trial
    return best[1], best[2]


def _rounding_error(
    counts: np.ndarray, limits: tuple[float, float], chosen: tuple[float, float], levels: int = 256
) -> float:
    """A histogram's summed squared rounding errors, relative to the sum of its squared values."""
    edges = np.linspace(*limits, len(counts) + 1)
    used = counts > 0
    centres, weights = ((edges[1:] + edges[:-1]) / 2)[used], counts[used]
    step = (chosen[1] - chosen[0]) / (levels - 1)
    zero = np.round(-chosen[0] / step)
    rounded = (np.clip(np.round(centres / step) + zero, 0, levels - 1) - zero) * step
    return float(np.dot(weights, np.square(rounded - centres)) / np.dot(weights, np.square(centres)))


def outputs_of(content: bytes, buckets: Sequence[LengthBucket]) -> list[dict[str, np.ndarray]]:
    """Runs a file; returns the outputs for each text, in order, without padding."""
    from ai_edge_litert.interpreter import Interpreter

    with stderr_on_failure():
        interpreter = Interpreter(model_content=content)
    outputs = []
    for bucket in buckets:
        runner = interpreter.get_signature_runner(signature_name(bucket.length))
        for row in range(len(bucket.indices)):
            inputs = {name: rows[row : row + 1] for name, rows in bucket.inputs.items()}
            outputs.append(real_values(runner(**inputs), inputs["input_mask"]))
    return outputs


def relative_error(expected: Sequence[Mapping[str, np.ndarray]], received: Sequence[Mapping[str, np.ndarray]]) -> float:
    """Root mean square difference over all outputs, divided by the expected outputs' root mean square."""
    joined = [
        np.concatenate([values.ravel() for outputs in answers for values in outputs.values()])
        for answers in (expected, received)
    ]
    return float(np.sqrt(np.mean(np.square(joined[1] - joined[0])) / np.mean(np.square(joined[0]))))
