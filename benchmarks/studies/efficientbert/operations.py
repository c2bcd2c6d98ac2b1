"""Cost of each operation in expressions as a TFLite kernel: `python -m studies efficientbert/operations`.

Each file has one operation on 128 tokens of 540 features, in float32, or in int8 with calibrated activations. The
reference is the linear map from 540 to 540 features in the same format.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.feedforward import ACTIVATIONS, AGGREGATIONS
from pocketbert_bench import results
from studies.kernel_times import CALLS, ROUNDS, Format, convert, seconds_of
from studies.marked_block import MarkedBlock

TOKENS, WIDTH = 128, 540
FORMATS: tuple[Format, ...] = ("float32", "int8")
LINEAR, DYNAMIC_LINEAR = "linear", "linear, dynamic_wi8"
BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "methods" / "efficientbert.md",
    name="OPERATIONS",
    origin="python -m studies.tables from benchmarks/studies/results/efficientbert/operations.json",
)


def run(quick: bool) -> dict[str, Any]:
    """Times all operations in both formats.

    Args:
      quick: two rounds on 8 tokens.

    Returns:
      Content of a result file.
    """
    tokens, rounds = (8, 2) if quick else (TOKENS, ROUNDS)
    random = np.random.default_rng(0)
    ratios = []
    for form in FORMATS:
        seconds = seconds_of(dict(_files(form, tokens)), rounds, random)
        ratios += [
            results.ratio(
                name=name if name == DYNAMIC_LINEAR else f"{name}, {form}",
                description=f"time of {name} on {tokens} tokens ÷ time of a linear map in {form}",
                ours=name,
                peer=LINEAR,
                unit="us",
                ours_samples=[1e6 * each for each in seconds[name]],
                peer_samples=[1e6 * each for each in seconds[LINEAR]],
                better="lower",
            )
            for name in seconds
            if name != LINEAR
        ]
    notes = [
        f"{tokens} tokens, {WIDTH} features, one thread; medians of the shortest of {CALLS} calls in {rounds} rounds",
    ]
    return results.to_json(
        results.result_file("Operations of feed-forward networks", quick=quick, ratios=ratios, notes=notes)
    )


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = {ratio.name: ratio for ratio in content.ratios}
    lines = ["| Operation | float32, µs | ÷ linear map | int8, µs | ÷ linear map |", "|---|---:|---:|---:|---:|"]
    reference = [_microseconds(found[f"relu, {form}"].peer_samples) for form in FORMATS]
    lines.append(f"| linear map | {reference[0]} | 1 | {reference[1]} | 1 |")
    for name in (*ACTIVATIONS, *AGGREGATIONS):
        cells = []
        for form in FORMATS:
            ratio = found[f"{name}, {form}"]
            cells += [_microseconds(ratio.ours_samples), f"{ratio.value:.3f}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    dynamic = found[DYNAMIC_LINEAR]
    lines += ["", f"- Linear map in `dynamic_wi8`: {_microseconds(dynamic.ours_samples)} µs."]
    return "\n".join([*lines, *(f"- {note}." for note in content.notes)]) + "\n"


def _microseconds(samples: tuple[float, ...]) -> str:
    return f"{float(np.median(samples)):.1f}"


def _files(form: Format, tokens: int) -> Iterator[tuple[str, bytes]]:
    """Yields operation and TFLite file; float32 includes the linear map in dynamic_wi8."""
    import tensorflow as tf

    from pocketbert.layers.core import feedforward_operations

    kernel = tf.constant(np.random.default_rng(1).normal(0, WIDTH**-0.5, [WIDTH, WIDTH]), tf.float32)
    operations, shape = feedforward_operations("truncate"), (tokens, WIDTH)
    yield LINEAR, convert(lambda x: tf.matmul(x, kernel), [shape], form)
    if form == "float32":
        yield DYNAMIC_LINEAR, convert(lambda x: tf.matmul(x, kernel), [shape], "dynamic_wi8")
    for name in (*ACTIVATIONS, *AGGREGATIONS):
        yield name, convert(operations[name], [shape] * (2 if name in AGGREGATIONS else 1), form)
