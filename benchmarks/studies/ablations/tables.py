"""The tables in docs/results/lengths.md, for `studies.tables`."""

from __future__ import annotations

import statistics
from pathlib import Path

from pocketbert_bench import results
from pocketbert_bench.results import Ratio
from studies.comparisons_table import target_cells
from studies.marked_block import MarkedBlock

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "lengths.md"
_ORIGIN = "python -m studies.tables from benchmarks/studies/results/ablations/"
MEMORY_BLOCK = MarkedBlock(path=_PAGE, name="MEMORY", origin=f"{_ORIGIN}weight_cache.json")
SPEED_BLOCK = MarkedBlock(path=_PAGE, name="SPEED", origin=f"{_ORIGIN}shared_lengths.json")
_METRICS = {"growth": "Resident growth", "opening": "Opening", "latency": "Latency, 128 tokens"}


def memory_table(content: results.ResultFile) -> str:
    """Writes the table of resident growth and opening time."""
    lines = ["| Metric | Ours | Baseline | Ours ÷ baseline (95 % CI) | Target | Met |", "|---|---|---|---:|---:|---|"]
    for ratio in content.ratios:
        metric = _METRICS[ratio.name.split(",")[0]]
        cells = [metric, _side(ratio.ours, ratio.ours_samples, ratio), _side(ratio.peer, ratio.peer_samples, ratio)]
        lines.append(f"| {' | '.join([*cells, _value(ratio), *target_cells(ratio)])} |")
    return "\n".join(lines) + "\n"


def speed_table(content: results.ResultFile) -> str:
    """Writes the table of mean speeds on SST-2's sentences, and the latencies by length."""
    lines = ["| Ours | Baseline | Ours ÷ baseline (95 % CI) | Target | Met |", "|---|---|---:|---:|---|"]
    for ratio in content.ratios:
        sides = [side.removeprefix("lengths ") for side in (ratio.ours, ratio.peer)]
        lines.append(f"| {' | '.join([*sides, _value(ratio), *target_cells(ratio)])} |")
    # The last note tells that weights are random.
    return "\n".join([*lines, "", *(f"- {note}" for note in content.notes[:-1])]) + "\n"


def _value(ratio: Ratio) -> str:
    low, high = ratio.interval
    return f"{ratio.value:.2f} ({low:.2f}–{high:.2f})"


def _side(name: str, samples: tuple[float, ...], ratio: Ratio) -> str:
    median = statistics.median(samples)
    return f"{name}: {f'{median / 1e6:.1f} MB' if ratio.unit == 'bytes' else f'{median / 1e3:.1f} ms'}"
