"""Memory cost of attention and feature transfer of every layer, in addition to the two models' own passes.

    python -m studies mobilebert/memory [--quick]

IB-BERT large forward, MobileBERT forward and backward, float32, without dropout and without an update. One kind of
process has a loss on the last feature maps only. The other compares all feature maps (the authors' decomposed form) and
all attention. Each process records the peak memory of arrays during its steps, above the level between them; processes
of both kinds alternate. The graph shows which arrays must be saved from the forward to the backward pass. A peak
includes more, such as temporary arrays of the weights' gradients, so both kinds are also measured with a backward pass
without weights' gradients.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pocketbert import progress
from pocketbert.errors import UserError
from pocketbert_bench import results
from studies.mobilebert import shapes as setting
from studies.mobilebert.memory_process import (
    ALL_WEIGHTS,
    PASSES,
    TRANSFER,
    WORD_TABLE,
    gradients,
)
from studies.mobilebert.saved_activations import Array, saved_activations
from studies.mobilebert.shapes import Shape

SHAPES = (Shape(), Shape(batch_size=2, length=512))
# Memory does not depend on the machine's load, and 24 layers take a while to trace.
PAIRS = 3
MIB = 2**20
_PROCESS = "studies.mobilebert.memory_process"


def run(quick: bool) -> dict[str, Any]:
    """Measures both kinds of process.

    Args:
      quick: one process of each kind and 4 layers, instead of `PAIRS` and 24.

    Returns:
      Content of a result file: peak memory of transfer ÷ that of the passes alone.

    Raises:
      UserError: a process failed.
    """
    setting.use_threads()
    created = results.now()
    ratios, notes = [], []
    for full in SHAPES:
        shape = Shape(layers=4, batch_size=full.batch_size, length=full.length) if quick else full
        peaks: dict[str, list[float]] = {PASSES: [], TRANSFER: []}
        for turn in progress.track(range(1 if quick else PAIRS), f"memory, {shape}", "pair"):
            for kind in list(peaks)[:: 1 if turn % 2 else -1]:
                peaks[kind].append(_peak(kind, shape))
        ratio = results.ratio(
            name=f"peak memory, length {shape.length}",
            description=f"transfer of every layer against the two models' passes alone, {shape}, float32",
            ours=TRANSFER,
            peer=PASSES,
            unit="bytes",
            ours_samples=peaks[TRANSFER],
            peer_samples=peaks[PASSES],
            better="lower",
        )
        ratios.append(ratio)
        above = sorted(ours - peer for ours, peer in zip(peaks[TRANSFER], peaks[PASSES], strict=True))
        notes.append(
            f"{shape}: with transfer the peak is {above[len(above) // 2] / MIB:+.0f} MiB from the passes' "
            f"{sorted(peaks[PASSES])[len(above) // 2] / MIB:.0f} MiB (medians). {explanation(shape)}. Without the "
            f"gradients of the layers' weights the peaks are {_peak(PASSES, shape, WORD_TABLE) / MIB:.0f} MiB (passes) "
            f"and {_peak(TRANSFER, shape, WORD_TABLE) / MIB:.0f} MiB (transfer)"
        )
    return results.to_json(
        results.result_file("memory of transfer", quick=quick, ratios=ratios, notes=notes, created=created)
    )


def explanation(shape: Shape) -> str:
    """Describes in a sentence what the graphs of both kinds save for the backward pass."""
    # The difference of two graphs is the cost of a layer, and two layers are quick to trace.
    parts = []
    for kind in (PASSES, TRANSFER):
        two, one = (
            _by_shape(kept(kind, Shape(layers=layers, batch_size=shape.batch_size, length=shape.length)), shape)
            for layers in (2, 1)
        )
        attention, others = (two[key] - one[key] for key in ("attention", "others"))
        parts.append(f"{attention / MIB:.1f} MiB of attention and {others / MIB:.1f} MiB of other arrays ({kind})")
    square = 4 * shape.batch_size * setting.config(setting.STUDENT, shape).num_attention_heads * shape.length**2
    return (
        f"By the graph, a layer saves {' and '.join(parts)}, and an attention array of all heads has "
        f"{square / MIB:.1f} MiB"
    )


def kept(kind: str, shape: Shape) -> list[Array]:
    """`saved_activations` of a step of that kind."""
    return saved_activations(gradients(kind, shape).get_concrete_function())


def _by_shape(arrays: list[Array], shape: Shape) -> dict[str, int]:
    """Bytes in arrays over pairs of tokens, and in all other arrays."""
    sizes = {"attention": 0, "others": 0}
    for array in arrays:
        # [B, N, S, S]; a feature map may be as wide as it is long, but has no axis of heads.
        pairs = len(array.shape) == 4 and array.shape[-2:] == (shape.length, shape.length)
        sizes["attention" if pairs else "others"] += array.size_bytes
    return sizes


def _peak(kind: str, shape: Shape, learns: str = ALL_WEIGHTS) -> float:
    """Peak in bytes that a process of that kind reports."""
    sizes = map(str, (shape.layers, shape.batch_size, shape.length))
    command = [sys.executable, "-m", _PROCESS, kind, learns, *sizes]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise UserError(f"a process that measures memory must end well; {kind} ended with: {last}")
    return float(json.loads(answer.stdout)["peak_bytes"])
