"""Forms of GELU and softmax as TFLite kernels: time and largest error.

Each file has one form, on the shapes of the 6x384 network with 128 tokens. The recipes `float32`, `float16`, `mixed`,
`dynamic_*` and `static_wi8_ai8` compute both in float32; `static_wi8_ai8_full` computes them in int8.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert_bench import results
from studies.kernel_times import CALLS, ROUNDS, SCALE, Format, convert, inputs_and_output, seconds_of
from studies.marked_block import MarkedBlock

FORMATS: tuple[Format, ...] = ("float32", "int8")
BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "recipes.md",
    name="ACTIVATIONS",
    origin="python -m studies.tables from benchmarks/studies/results/ablations/activations.json",
)
_ERROR = "largest error: "


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function and its forms.

    Attributes:
      name: name in the table.
      shape: shape of the input.
      exact: the function in float64.
      forms: name of a form → its operations; export writes the first one.
    """

    name: str
    shape: tuple[int, ...]
    exact: Callable[[np.ndarray], np.ndarray]
    forms: Mapping[str, Callable[[Any], Any]]


def run(quick: bool) -> dict[str, Any]:
    """Times all forms in both formats; returns the content of a result file."""
    random, rounds = np.random.default_rng(0), 2 if quick else ROUNDS
    ratios, notes = [], []
    for function in _functions(quick):
        for form in FORMATS:
            files = {name: convert(operations, [function.shape], form) for name, operations in function.forms.items()}
            exported = next(iter(files))
            for name, content in files.items():
                (received,), answered = inputs_and_output(content, random)
                error = float(np.abs(answered - function.exact(received)).max())
                notes.append(f"{_ERROR}{_label(function.name, name, form)}: {error:.2g}")
            seconds = seconds_of(files, rounds, random)
            ratios += [
                results.ratio(
                    name=_label(function.name, name, form),
                    description=f"time of {function.name} as {name} ÷ time as {exported}, in {form}",
                    ours=name,
                    peer=exported,
                    unit="us",
                    ours_samples=[1e6 * each for each in seconds[name]],
                    peer_samples=[1e6 * each for each in seconds[exported]],
                    better="lower",
                )
                for name in files
            ]
    protocol = f"one thread; medians of the shortest of {CALLS} calls in {rounds} rounds"
    notes.append(f"inputs with a standard deviation of {SCALE:g}; {protocol}")
    return results.to_json(results.result_file("GELU and softmax", quick=quick, ratios=ratios, notes=notes))


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    header = "| Function | Form | Kernel | µs | ÷ exported form (95 % CI) | Largest error |"
    lines = [header, "|---|---|---|---:|---:|---:|"]
    errors = dict(note.removeprefix(_ERROR).rsplit(": ", 1) for note in content.notes if note.startswith(_ERROR))
    for ratio in content.ratios:
        function, name, form = _parts(ratio.name)
        low, high = ratio.interval
        value = "1 (exported)" if ratio.ours == ratio.peer else f"{ratio.value:.2f} ({low:.2f} to {high:.2f})"
        time = f"{float(np.median(ratio.ours_samples)):.1f}"
        lines.append(f"| {function} | {name} | {form} | {time} | {value} | {errors[ratio.name]} |")
    return "\n".join([*lines, "", f"Measured with {content.notes[-1]}."]) + "\n"


def _parts(label: str) -> tuple[str, str, str]:
    function, rest = label.split(", ", 1)
    name, form = rest.rsplit(", ", 1)
    return function, name, form


def _label(function: str, name: str, form: str) -> str:
    return f"{function}, {name}, {form}"


def _functions(quick: bool) -> tuple[Function, ...]:
    import tensorflow as tf

    def divided(x: Any) -> Any:
        powers = tf.exp(x)
        return powers / tf.reduce_sum(powers, -1, keepdims=True)

    tokens = 16 if quick else 128
    return (
        Function(
            name=f"GELU ({tokens} x 1536)",
            shape=(tokens, 1536),
            exact=lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
            forms={
                "erf": tf.nn.gelu,
                "tanh": functools.partial(tf.nn.gelu, approximate=True),
                "x · sigmoid(1.702 x)": lambda x: x * tf.sigmoid(1.702 * x),
                "relu, for comparison": tf.nn.relu,
            },
        ),
        Function(
            name=f"softmax (12 x {tokens} x {tokens})",
            shape=(12, tokens, tokens),
            exact=lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
            forms={"SOFTMAX": tf.nn.softmax, "exp ÷ sum": divided},
        ),
    )
