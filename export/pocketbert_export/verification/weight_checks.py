"""Compare a file's constants with the model's weights, row by row.

Texts do not reach every part of a file: rare tokens, late positions and single matrix rows change few answers. Here
every embedding table and every large matrix is dequantized and compared with its original weight.

The converter folds a layer norm's gamma into the dense layers behind it, and smoothing and equalization move scales
from activations into weights. So a matrix may differ from the model's by one factor per input, and by a power of two
per output, or any factor per output for runtimes without per-channel quantization. These factors are fitted; the rest
must be the recipe's rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.layers.relative_attention import distance_rows
from pocketbert.layers.rotary_positions import rotations
from pocketbert.model import Model
from pocketbert_export.checks.outputs import Check
from pocketbert_export.tflite.graph import Constant, constants, read_model

# Largest relative difference in a row. float32: sums in the factors' fit. float16: rounding by 2^-11, once or twice.
# int8: a row of normally distributed weights differs by 0.9 %, and one with a weight eight times its other ones by 8 %.
# int4: by 9 % in blocks, and by more where later weights compensate for the rounding of earlier ones.
ROW_BOUNDS = {"float32": 1e-5, "float16": 2e-3, "int8": 0.15, "int4": 0.35}
# A row whose largest weight is far above its others has a coarser step, and may differ by as many times its rounding.
_ROUNDINGS = 3.0
_LARGEST_NUMBER = {"int8": 127, "int4": 7}
# Every answer depends on smaller matrices.
_FEWEST = 256
_WORDS, _POSITIONS, _SEGMENTS = (f"encoder.embeddings.{name}.table" for name in ("word", "position", "token_type"))
# Rows to identify a matrix's original weight.
_SAMPLED_ROWS = 64
# The same for distances, of the first head.
_SAMPLED_DISTANCES = 4
# Rows for the fit of the factors per input, and number of fits.
_FITTED_ROWS, _FITS = 512, 3
_TINY = 1e-12
# Far above the padding bias, far below weights.
_MASKED = -1e4
# With fewer rows, factors per input would fit anything.
_FEWEST_ROWS = 8
# A matrix differs from another weight by nearly 1.
_ALIKE = 0.7


class RowDifference(NamedTuple):
    """The row of a constant with the largest difference from its original weight.

    Attributes:
      weight: the weight's path; empty if no weight is alike.
      row: the row's index.
      size: length of the difference, relative to the row's length, or to the root mean square over all rows if larger.
      share: the same, relative to the bound.
    """

    weight: str
    row: int
    size: float
    share: float


def row_differences(constant: Constant, weights: Mapping[str, np.ndarray], *, free: bool) -> Iterator[RowDifference]:
    """Yields the largest difference for each weight in a matrix; projections may be joined in one.

    Weights are `[rows, width]`, as the file stores them. If `free`, outputs may have any factor, as after folding.
    """
    values = constant.values.reshape(-1, constant.values.shape[-1])
    first = 0
    while len(values) - first >= (_FEWEST_ROWS if free else 1):
        path = _most_alike(values[first:], weights, free=free or constant.per_tensor)
        if path is None:
            yield RowDifference("", first, 1.0, np.inf)
            return
        weight = weights[path][: len(values) - first]
        part = values[first : first + len(weight)]
        # With per-tensor quantization, each output of a kernel is divided by its largest weight.
        fitted = _fitted(part, weight, free=free or (constant.per_tensor and not path.endswith(".table")))
        yield _largest(path, part, fitted, constant)
        first += len(weight)


def check_weights(content: bytes, model: Model) -> Check:
    """Checks that a file's embedding tables and large matrices have the plain float model's rows."""
    weights, free = stored_weights(model), model.config.norm == "no_norm"
    by_distance = distance_tables(model) if model.config.relative else {}
    worst, worst_row, compared, problems = 0.0, "", set(), []
    for constant in constants(read_model(content), 2 * model.config.embedding_size):
        # Masks of single-query attention have zeros and ones, those of local attention zeros and the padding bias.
        if constant.values.ndim < 2 or (np.isin(constant.values, (0, 1)) | (constant.values <= _MASKED)).all():
            continue
        differences = row_differences(constant, weights, free=free)
        if by_distance and constant.values.ndim == 4:
            differences = distance_differences(constant, by_distance)
        for difference in differences:
            share = difference.share
            compared.add(difference.weight)
            # Heads for a few labels have too few rows to be told apart.
            if not difference.weight and (constant.values.size < _FEWEST or len(constant.values) < _FEWEST_ROWS):
                continue
            if not difference.weight:
                problems.append(f"rows of {constant.name} from {difference.row} on are in no weight of the model")
            elif not share <= 1:
                problems.append(f"row {difference.row} of {difference.weight} differs by {difference.size:.2g}")
            if not share <= worst:
                worst, worst_row = share, f"row {difference.row} of {difference.weight or constant.name}"
    # Every file needs these tables; the factors of NoNorm cannot be told from two rows.
    has_segments = model.config.type_vocab_size > 1 and model.config.norm != "no_norm"
    positions = [_POSITIONS] if model.config.has_position_table else [*by_distance]
    tables = [_WORDS, *positions, *([_SEGMENTS] if has_segments else [])]
    problems += [f"{path} is not in the file" for path in tables if path not in compared]
    reason = "; ".join(problems[:3]) or f"{len(compared)} weights have the model's rows; {worst_row} differs most"
    return Check(
        name="weights",
        passed=not problems,
        measured=worst if np.isfinite(worst) else None,
        bound=1.0,
        reason=f"{reason}; measured: share of the bound",
    )


def distance_tables(model: Model) -> dict[str, np.ndarray]:
    """Path → `[N, distances, d]` for each layer's keys and queries of the distances, the most positive one first.

    DeBERTa's files have no relative table, but these products of it.
    """
    config, tables = model.config, {}
    assert config.relative is not None
    rows = distance_rows(config.relative, config.max_position_embeddings)
    vectors = model.encoder.relative.vectors()
    for layer, block in enumerate(model.encoder.layers_):
        attention = block.attention
        for name, linear, scale in (("key", attention.key, 1.0), ("query", attention.query, attention.scale)):
            mapped = linear(vectors).numpy()[rows] * np.float32(scale)
            heads = mapped.reshape(len(rows), config.num_attention_heads, config.head_size)
            tables[f"encoder.layers.{layer}.attention.{name} of the distances"] = heads.transpose(1, 0, 2)
    return tables


def distance_differences(constant: Constant, tables: Mapping[str, np.ndarray]) -> Iterator[RowDifference]:
    """Yields the largest difference for each block of a constant `[1, N · blocks, C, d]`; see `by_distance`."""
    heads = len(next(iter(tables.values())))
    blocks = constant.values.shape[1] // heads
    for block in range(blocks):
        yield _distance_difference(constant, constant.values[0, block::blocks], tables)


def _distance_difference(constant: Constant, values: np.ndarray, tables: Mapping[str, np.ndarray]) -> RowDifference:
    """The largest difference of values `[N, C, d]` from the C distances that they are nearest to."""
    count, nearest, path, fitted = values.shape[1], np.inf, "", values
    sampled = _evenly(count, _SAMPLED_DISTANCES)
    for name, table in tables.items():
        # A file has either order.
        for ordered in (table, table[:, ::-1]):
            first_rows = np.arange(ordered.shape[1] - count + 1)[:, None] + sampled
            distances = np.square(ordered[0, first_rows] - values[0, sampled]).sum(axis=(1, 2))
            first = int(distances.argmin())
            if distances[first] < nearest:
                nearest, path, fitted = float(distances[first]), name, ordered[:, first : first + count]
    values, fitted = (heads.reshape(-1, heads.shape[2]) for heads in (values, fitted))
    return _largest(path, values, fitted, constant)


def stored_weights(model: Model) -> dict[str, np.ndarray]:
    """Path → `[rows, width]` for every matrix in a model, as a file stores it: kernels are transposed.

    `attend_to_inputs` multiplies the last layer's query by its key kernel, which the file then stores as it is.
    """
    config = model.config
    matrices = {
        path: variable.numpy() for path, variable in model.weights_by_path().items() if len(variable.shape) == 2
    }
    stored = {path: values if path.endswith(".table") else values.T for path, values in matrices.items()}
    last_key = f"encoder.layers.{config.num_stored_layers - 1}.attention.key.kernel"
    stored[f"{last_key}, not transposed"] = matrices[last_key]
    if config.rotary is not None:
        return {**stored, **_of_rotary(config, stored)}
    if not config.has_position_table:
        return stored
    positions = matrices[_POSITIONS][config.position_offset :]
    if config.type_vocab_size == 1:
        # A single segment is added to each position.
        positions = positions + stored.pop(_SEGMENTS)
    return {**stored, _POSITIONS: positions}


def _largest(path: str, values: np.ndarray, fitted: np.ndarray, constant: Constant) -> RowDifference:
    """The largest difference of a constant's values `[rows, width]` from a fitted weight."""
    errors, floor = _errors(values, fitted), ROW_BOUNDS.get(constant.kind, ROW_BOUNDS["float16"])
    bounds = np.maximum(floor, _ROUNDINGS * _rounding(fitted, constant.kind, per_tensor=constant.per_tensor))
    row = int((errors / bounds).argmax())
    return RowDifference(path, row, float(errors[row]), float(errors[row] / bounds[row]))


def _of_rotary(config: EncoderConfig, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tables of rotary positions, and the kernels without their mean over outputs (`fold_pre_norm`)."""
    assert config.rotary is not None
    writers = [path for path in stored if path.endswith(("attention.output.kernel", "feed_forwards.0.output.kernel"))]
    others = {f"{path}, centred": stored[path] - stored[path].mean(axis=0) for path in writers}
    for name, theta in (("global", config.rotary.theta), ("local", config.rotary.local_theta)):
        tables = rotations(config.max_position_embeddings, config.head_size, theta)
        for function, table in zip(("cosines", "sines"), tables, strict=True):
            others[f"{name} {function}.table"] = np.asarray(table)
    return others


def _most_alike(values: np.ndarray, weights: Mapping[str, np.ndarray], *, free: bool) -> str | None:
    best, path = _ALIKE, None
    for name, weight in weights.items():
        padding = values.shape[1] - weight.shape[1]
        count = min(len(weight), len(values))
        is_table = name.endswith(".table")
        if not 0 <= padding < 64 or (not is_table and not _FEWEST_ROWS <= len(weight) <= len(values)):
            continue
        rows = _evenly(count, _SAMPLED_ROWS)
        part = values[rows]
        difference = float(np.median(_errors(part, _fitted(part, weight[rows], free=free))))
        if difference < best:
            best, path = difference, name
    return path


def _fitted(values: np.ndarray, weight: np.ndarray, *, free: bool) -> np.ndarray:
    """The weight, padded to the values' width and fitted to them by factors per input and output."""
    padded = np.pad(weight, [(0, 0), (0, values.shape[1] - weight.shape[1])])
    if len(values) < _FEWEST_ROWS:
        return padded
    rows = _evenly(len(values), _FITTED_ROWS)
    sample, sampled_values = padded[rows], values[rows]
    inputs = _first_inputs(sampled_values, sample)
    for _ in range(_FITS):
        scaled = sample * _output_factors(sampled_values, sample * inputs, free=free)
        # Rows of one length, so that none decides alone.
        shares = 1 / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), _TINY)
        scaled = scaled * shares
        inputs = np.sum(scaled * sampled_values * shares, axis=0) / np.maximum(np.sum(np.square(scaled), axis=0), _TINY)
    fitted = padded * inputs
    return fitted * _output_factors(values, fitted, free=free)


def _first_inputs(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Factor per input from mean logarithms of ratios, `[width]`; least squares needs this start for large ones."""
    nonzero = (values != 0) & (weight != 0)
    ratios = np.log(np.abs(np.where(nonzero, values, 1))) - np.log(np.abs(np.where(nonzero, weight, 1)))
    inputs = np.zeros(values.shape[1], np.float32)
    of_row, of_column = (np.maximum(nonzero.sum(axis=axis), 1) for axis in (1, 0))
    for _ in range(_FITS):
        outputs = np.sum(np.where(nonzero, ratios - inputs, 0), axis=1) / of_row
        inputs = np.sum(np.where(nonzero, ratios - outputs[:, None], 0), axis=0) / of_column
    signs = np.sign(values) * np.sign(weight)
    of_outputs = np.sign(signs @ signs[0])
    return np.exp(inputs) * np.where(of_outputs @ signs < 0, -1, 1)


def _output_factors(values: np.ndarray, weight: np.ndarray, *, free: bool) -> np.ndarray:
    """Factor per row by least squares, `[rows, 1]`: a power of two, or any number if `free`."""
    slopes = np.sum(weight * values, axis=1) / np.maximum(np.sum(np.square(weight), axis=1), _TINY)
    slopes = np.where(np.abs(slopes) > _TINY, slopes, 1)
    if not free:
        # The input factors have any scale.
        scale = np.median(np.abs(slopes))
        slopes = scale * np.exp2(np.round(np.log2(np.abs(slopes) / scale)))
    return slopes.astype(np.float32)[:, None]


def _evenly(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, most).astype(int))


def _rounding(weight: np.ndarray, kind: str, *, per_tensor: bool) -> np.ndarray:
    """Expected relative difference per row if its largest weight decides the step, `[rows]`; 0 for floats."""
    if kind not in _LARGEST_NUMBER:
        return np.zeros(len(weight))
    largest = np.abs(weight).max(axis=1)
    steps = (np.full_like(largest, largest.max()) if per_tensor else largest) / _LARGEST_NUMBER[kind]
    return steps / np.sqrt(12) * np.sqrt(weight.shape[1]) / _sizes(weight)


def _errors(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Relative difference per row, `[rows]`."""
    return np.linalg.norm(values - weight, axis=1) / _sizes(values)


def _sizes(weight: np.ndarray) -> np.ndarray:
    """Length of each row, or the root mean square over all if larger, `[rows]`."""
    sizes = np.linalg.norm(weight, axis=1)
    return np.maximum(sizes, float(np.sqrt(np.mean(np.square(sizes)))) or 1.0)
