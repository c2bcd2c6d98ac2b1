"""Memory and time of MiniLMv2's relation loss in chunks, against the loss with all relations in memory.

    python -m studies minilmv2/relations [--quick]

BERT-base teaches the 6x384 student: 48 relation heads, Q-Q, K-K and V-V, 8 texts of 512 tokens, float32, two threads.
"Loss" is the loss with its gradients, given both models' vectors. "Step" adds the teacher's forward pass and the
student's forward and backward pass. Every peak is from a process of its own: TensorFlow's arrays during the steps,
above the level between them. Times alternate in one process. If PyTorch is installed, the whole step is also timed
against the same in eager PyTorch.

The last rows show the time of a teacher that stops at the vectors of one layer, against all of its layers.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert_bench import results
from studies.against_transformers import pytorch_process
from studies.minilmv2 import relation_steps
from studies.minilmv2.relation_steps import (
    LOSS,
    LOSS_WHOLE,
    RELATION_HEADS,
    RELATIONS,
    STEP,
    STEP_WHOLE,
    STUDENT,
    TEACHER,
    THREADS,
)

BATCH_SIZE, LENGTH = 8, 512
MIB = 2**20
MEMORY_TARGET, TIME_TARGET = 0.125, 1.15
PEER, PEER_MODULE, PEER_TARGET = "PyTorch eager", "studies.minilmv2.pytorch_relations", 2.0
# Teacher → layers at which it stops (section 3.2).
LAYERS = {"bert_base_uncased": (12,), "bert_large_uncased": (19, 21)}
TEACHER_BATCH, TEACHER_LENGTH = 8, 128


def run(quick: bool) -> dict[str, Any]:
    """Measures memory and time.

    Args:
      quick: three rounds of 2 texts of 256 tokens, instead of nine of 8 texts of 512.

    Returns:
      Content of a result file.
    """
    relation_steps.use_threads()
    created = results.now()
    sizes = (2, 256) if quick else (BATCH_SIZE, LENGTH)
    rounds = 3 if quick else 9
    text = f"{sizes[0]} texts of {sizes[1]} tokens, {relation_steps.RELATION_HEADS} relation heads, 3 relations"
    ratios, notes = [], []
    for ours, baseline, targets in (
        (LOSS, LOSS_WHOLE, (MEMORY_TARGET, TIME_TARGET)),
        (STEP, STEP_WHOLE, (None, None)),
    ):
        peaks = {kind: _peak(kind, *sizes) for kind in (ours, baseline)}
        what = ours.partition(",")[0]
        notes.append(
            f"peak memory of the {what}: {peaks[ours] / MIB:,.0f} MiB in chunks, {peaks[baseline] / MIB:,.0f} MiB as a "
            "whole"
        )
        steps = {kind: relation_steps.make_step(kind, *sizes) for kind in (ours, baseline)}
        seconds = _seconds(steps, rounds)
        for name, unit, samples, target in (
            ("memory", "bytes", {kind: [peak] for kind, peak in peaks.items()}, targets[0]),
            ("time", "s", seconds, targets[1]),
        ):
            ratios.append(
                results.ratio(
                    name=f"{name} of the {what}, in chunks against as a whole",
                    description=f"{text}, float32, {relation_steps.THREADS} threads",
                    ours=ours,
                    peer=baseline,
                    unit=unit,
                    ours_samples=samples[ours],
                    peer_samples=samples[baseline],
                    better="lower",
                    target=target,
                )
            )
    if importlib.util.find_spec("torch"):
        ratios.append(_peer_ratio(sizes, rounds))
    else:
        notes.append(f"{PEER} is not installed, so it was not measured")
    for name, layers in LAYERS.items():
        ratios += _teacher_ratios(name, layers, rounds)
    return results.to_json(
        results.result_file("MiniLMv2's relation loss", quick=quick, ratios=ratios, notes=notes, created=created)
    )


def _peer_ratio(sizes: tuple[int, int], rounds: int) -> Any:
    """Steps per second ÷ those of eager PyTorch."""
    layers = preset(TEACHER).config.num_layers
    arguments = (TEACHER, STUDENT, layers, RELATION_HEADS, *sizes, THREADS)
    with pytorch_process.steps(PEER_MODULE, *arguments, threads=THREADS) as peer:
        seconds = _seconds({STEP: relation_steps.make_step(STEP, *sizes), PEER: peer}, rounds)
    rates = {name: [sizes[0] / each for each in samples] for name, samples in seconds.items()}
    return results.ratio(
        name=f"step of MiniLMv2, against {PEER}",
        description=f"{TEACHER} to {STUDENT}, {sizes[0]} texts of {sizes[1]} tokens, {RELATION_HEADS} relation heads, "
        f"forward and backward, float32, {THREADS} threads",
        ours=STEP,
        peer=PEER,
        unit="examples/s",
        ours_samples=rates[STEP],
        peer_samples=rates[PEER],
        better="higher",
        target=PEER_TARGET,
    )


def _teacher_ratios(name: str, layers: tuple[int, ...], rounds: int) -> list[Any]:
    """Time of a teacher up to the vectors of one layer ÷ that of its whole forward pass."""
    steps = _teacher_steps(name, layers)
    whole = "all layers"
    seconds = _seconds(steps, rounds)
    return [
        results.ratio(
            name=f"time of {name} up to layer {layer}, against all layers",
            description=f"forward pass, {TEACHER_BATCH} texts of {TEACHER_LENGTH} tokens, float32, "
            f"{relation_steps.THREADS} threads",
            ours=f"layer {layer}",
            peer=whole,
            unit="s",
            ours_samples=seconds[f"layer {layer}"],
            peer_samples=seconds[whole],
            better="lower",
        )
        for layer in layers
    ]


def _teacher_steps(name: str, layers: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    import tensorflow as tf

    from pocketbert.model import from_preset

    model = from_preset(preset(name).config, seed=0)
    ids = np.random.default_rng(0).integers(1000, 30_000, [TEACHER_BATCH, TEACHER_LENGTH]).astype(np.int32)
    batch = tf.Variable(ids)
    top = model.config.num_layers
    requests: dict[str, dict[str, tuple[int, ...]]] = {"all layers": {"hidden_states": (top,)}}
    requests |= {f"layer {layer}": dict.fromkeys(RELATIONS, (layer,)) for layer in layers}

    def step(request: Any) -> Callable[[], Any]:
        @tf.function
        def forward() -> tf.Tensor:
            found = model.features({"input_word_ids": tf.convert_to_tensor(batch)}, request)
            return tf.add_n([tf.reduce_sum(each[0]) for each in found.values()])

        return forward

    return {label: step(request) for label, request in requests.items()}


def _seconds(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, by round, in alternating order; the first two rounds trace and warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in progress.track(range(-2, rounds), "rounds", "round"):
        for name in list(steps)[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            float(steps[name]())
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def _peak(kind: str, batch_size: int, length: int) -> float:
    """Peak in bytes that a process of that kind reports."""
    command = [sys.executable, "-m", "studies.minilmv2.relation_steps", kind, str(batch_size), str(length)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise UserError(f"a process that measures memory must end well; {kind} ended with: {last}")
    return float(json.loads(answer.stdout)["peak_bytes"])
