"""Time and memory of a training step with gradient checkpointing, beside the same step without it.

The network has 12 layers of 768, and a batch has 8 texts of 512 tokens, with dropout. Steps alternate in one process
for the time. For the memory, each kind of step runs in a process of its own, first on a single short text and then on
a batch: the difference of both peaks is the activations, without weights, gradients, moments and the runtime. Close
other programs first.

    python -m studies gradient_checkpointing
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pocketbert_bench import results

LAYERS, BATCH, LENGTH, PAIRS = 12, 8, 512, 3
MOST_TIME, MOST_MEMORY = 1.45, 0.45
_QUICK_LAYERS, _QUICK_LENGTH = 2, 64
_WITH, _WITHOUT = "with gradient checkpointing", "without"


def run(quick: bool) -> dict[str, Any]:
    """Measures both ratios."""
    layers, length = (_QUICK_LAYERS, _QUICK_LENGTH) if quick else (LAYERS, LENGTH)
    memory = {name: [_activations(layers, length, name)] for name in (_WITH, _WITHOUT)}
    seconds = _seconds(layers, length)
    ratios = [
        _ratio("step", "seconds of a training step", "s", seconds, MOST_TIME),
        _ratio("activations", "peak memory above that of a step on a short text", "bytes", memory, MOST_MEMORY),
    ]
    return results.to_json(results.result_file("gradient checkpointing", quick=quick, ratios=ratios))


def _ratio(name: str, description: str, unit: str, samples: dict[str, list[float]], most: float) -> results.Ratio:
    return results.ratio(
        name=name,
        description=description,
        ours=_WITH,
        peer=_WITHOUT,
        unit=unit,
        ours_samples=samples[_WITH],
        peer_samples=samples[_WITHOUT],
        better="lower",
        target=most,
    )


def _seconds(layers: int, length: int) -> dict[str, list[float]]:
    """Seconds of steps in turns; one step of each kind warms up."""
    steps = _steps(layers)
    seconds: dict[str, list[float]] = {_WITH: [], _WITHOUT: []}
    for turn in range(1 + PAIRS):
        for name in (_WITH, _WITHOUT) if turn % 2 else (_WITHOUT, _WITH):
            begin = time.perf_counter()
            steps[name](BATCH, length)
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def _activations(layers: int, length: int, name: str) -> float:
    """Bytes of a step's activations, from a process of its own."""
    program = f"from studies import gradient_checkpointing as study; study.print_peaks({layers}, {length}, {name!r})"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    before, after = json.loads(output.splitlines()[-1])
    return float(after - before)


def print_peaks(layers: int, length: int, name: str) -> None:
    """Prints the peak memory of this process after a step on a short text, and after a step on a batch."""
    import resource

    step, peaks = _steps(layers)[name], []
    for batch, tokens in ((1, 8), (BATCH, length)):
        step(batch, tokens)
        peaks.append(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(json.dumps(peaks))


def _steps(layers: int) -> dict[str, Callable[[int, int], None]]:
    """Training steps of one classifier on random tokens, by kind."""
    import numpy as np
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert.presets import preset
    from pocketbert.training.objectives.finetuning import Finetuning, finetuning_stage
    from pocketbert.training.step import TrainingModel

    task = pb.TaskConfig(kind="classification", labels=("a", "b"))
    model = pb.from_preset(preset("bert_base_uncased").config.replace(num_layers=layers), task)
    training = TrainingModel(model, Finetuning(), finetuning_stage(pb.FinetuneConfig(learning_rate=1e-5), task))
    training.compile(training.make_optimizer(100))
    functions = {
        name: tf.function(training.update, autograph=False, reduce_retracing=True) for name in (_WITH, _WITHOUT)
    }

    def step(name: str, batch: int, length: int) -> None:
        ids = np.random.default_rng(0).integers(1000, 20_000, [batch, length]).astype(np.int32)
        model.encoder.recomputes = name == _WITH
        elements = {
            "input_word_ids": tf.constant(ids),
            "input_mask": tf.ones_like(ids),
            "input_type_ids": tf.zeros_like(ids),
            "labels": tf.constant(ids[:, 0] % 2),
        }
        losses = functions[name](elements)
        losses["loss"].numpy()

    return {name: lambda batch, length, name=name: step(name, batch, length) for name in functions}  # type: ignore[misc]
