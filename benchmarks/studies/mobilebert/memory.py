"""What attention and feature transfer of every layer cost in memory, above the two models' own passes.

    python -m studies mobilebert/memory [--quick]

IB-BERT large forward, MobileBERT forward and backward, float32, without dropout and without an update. One kind of
process takes a loss of the last feature maps alone; the other compares all feature maps (the authors' decomposed form)
and all attention. Each process notes the most that arrays took during its steps above what is there between them;
processes of the two kinds take turns. Beside it stands what the graph says must live from the forward to the backward
pass. A peak has more in it, such as what the weights' gradients need; so both kinds are measured once more with a
backward pass that makes none of these.
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
# Memory does not depend on what else the machine does, and 24 layers take a while to trace.
PAIRS = 3
MIB = 2**20
_PROCESS = "studies.mobilebert.memory_process"


def run(quick: bool) -> dict[str, Any]:
    """Measures both kinds of process.

    Args:
      quick: one process of each kind, and 4 layers, instead of `PAIRS` and 24.

    Returns:
      A result file's content: peak memory of transfer over that of the passes alone.

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
    """What the graphs of both kinds keep for the backward pass, in a sentence."""
    # A layer more is what a layer costs, and two layers are soon traced.
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
        f"By the graph a layer keeps {' and '.join(parts)}, and an attention array of all heads has "
        f"{square / MIB:.1f} MiB"
    )


def kept(kind: str, shape: Shape) -> list[Array]:
    """`saved_activations` of a step of that kind."""
    return saved_activations(gradients(kind, shape).get_concrete_function())


def _by_shape(arrays: list[Array], shape: Shape) -> dict[str, int]:
    """Bytes in arrays over pairs of tokens, and in all others."""
    sizes = {"attention": 0, "others": 0}
    for array in arrays:
        # [B, N, S, S]; a feature map may be as wide as it is long, but has no axis of heads.
        pairs = len(array.shape) == 4 and array.shape[-2:] == (shape.length, shape.length)
        sizes["attention" if pairs else "others"] += array.size_bytes
    return sizes


def _peak(kind: str, shape: Shape, learns: str = ALL_WEIGHTS) -> float:
    """What a process of that kind says, in bytes."""
    sizes = map(str, (shape.layers, shape.batch_size, shape.length))
    command = [sys.executable, "-m", _PROCESS, kind, learns, *sizes]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise UserError(f"a process that measures memory must end well; {kind} ended with: {last}")
    return float(json.loads(answer.stdout)["peak_bytes"])
