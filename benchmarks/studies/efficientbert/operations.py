"""Cost of each operation in expressions as a TFLite kernel: `python -m studies efficientbert/operations`.

Each file has one operation on 128 tokens of 540 features, in float32, or in int8 with calibrated activations. The
reference is the linear map from 540 to 540 features in the same format. One thread of LiteRT with XNNPACK. A round
calls each file some times, in shuffled order, and keeps the shortest call: other programs only add time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pocketbert.feedforward import ACTIVATIONS, AGGREGATIONS
from pocketbert_bench import results
from studies.marked_block import MarkedBlock

if TYPE_CHECKING:
    import tensorflow as tf

Format = Literal["float32", "dynamic_wi8", "int8"]

TOKENS, WIDTH = 128, 540
ROUNDS, CALLS = 40, 25
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
        calls = {name: _call(content, random) for name, content in _files(form, tokens)}
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name in random.permutation(list(calls)):
                seconds[name].append(min(_timed(calls[name]) for _ in range(CALLS)))
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
            for name in calls
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
    operations = feedforward_operations("truncate")
    yield LINEAR, convert(lambda x: tf.matmul(x, kernel), 1, tokens, form)
    if form == "float32":
        yield DYNAMIC_LINEAR, convert(lambda x: tf.matmul(x, kernel), 1, tokens, "dynamic_wi8")
    for name in (*ACTIVATIONS, *AGGREGATIONS):
        yield name, convert(operations[name], 2 if name in AGGREGATIONS else 1, tokens, form)


def convert(function: Callable[..., tf.Tensor], inputs: int, tokens: int, form: Format) -> bytes:
    """Converts a function of `inputs` arrays [tokens, WIDTH].

    Args:
      function: the operation.
      inputs: number of its inputs.
      tokens: rows.
      form: `float32`; `dynamic_wi8` for int8 weights; or `int8` for inputs, outputs and weights.

    Returns:
      Content of a TFLite file.
    """
    import tensorflow as tf

    signature = [tf.TensorSpec([tokens, WIDTH], tf.float32, name=f"x{number}") for number in range(inputs)]
    concrete = tf.function(lambda *arrays: function(*arrays), input_signature=signature).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    if form != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "int8":
        random = np.random.default_rng(2)
        rows = [[random.normal(0, 2, [tokens, WIDTH]).astype(np.float32) for _ in range(inputs)] for _ in range(4)]
        converter.representative_dataset = lambda: iter(rows)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def _call(content: bytes, random: np.random.Generator) -> Callable[[], None]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        values = random.normal(0, 2, each["shape"])
        if each["dtype"] == np.int8:
            values = np.clip(16 * values, -127, 127)
        interpreter.set_tensor(each["index"], values.astype(each["dtype"]))
    return interpreter.invoke


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
