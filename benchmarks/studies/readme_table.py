"""README's table of `pocketbert quickstart --full`, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert_bench import comparison, results
from pocketbert_bench.comparison import Row
from studies.marked_block import MarkedBlock
from studies.score_cells import NOTHING

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[2] / "README.md",
    name="RESULTS",
    origin="python -m studies.tables from benchmarks/studies/results/quickstart.json",
)
LENGTHS = (32, 128)
_NAMES = {"teacher": "6 layers, fine-tuned", "student": "3 layers, distilled"}
_COMMANDS = {"teacher": "finetune", "student": "distill"}


def table(content: results.ResultFile) -> str:
    """Writes the text between README's marks."""
    rows = comparison.rows([content], {"student": "teacher"})
    heads = ["Model", "Accuracy", "Size", *(f"{length} tokens" for length in LENGTHS), "Speed-up", "Command"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 2) + "---|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    machine = content.machine
    lines += [
        "",
        "Accuracy on the dev split of film reviews. Latency per text, one thread, on an "
        f"{machine.cpu}; speed-up over TensorFlow's converter (float32) at {LENGTHS[-1]} tokens.",
        "`pocketbert quickstart --full` runs all of these commands on your machine.",
    ]
    if any(caveat.mark == comparison.BUSY for caveat in comparison.caveats(rows)):
        lines.append("Other programs ran at the same time: these latencies are too high. Compare the speed-ups.")
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    assert row.size_bytes
    name = f"{row.model}: {row.label}" if row.model not in _NAMES else f"{_NAMES[row.model]}, {row.recipe}"
    if row.is_baseline:
        name = f"TensorFlow's converter, {row.recipe}"
    command = "bench --baselines" if row.is_baseline else f"{_COMMANDS[row.model]}`, `export --recipe={row.recipe}"
    return [
        name,
        f"{100 * row.accuracy.value:.1f} %" if row.accuracy else NOTHING,
        f"{row.size_bytes / 1e6:.0f} MB",
        # An export with one length pads shorter texts to it.
        *(f"{(row.effective_latency_us(length, 1) or 0) / 1e3:.1f} ms" for length in LENGTHS),
        f"{1 / row.faster.value:.1f}×" if row.faster else NOTHING,
        f"`{command}`",
    ]
