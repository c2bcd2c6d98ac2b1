"""The table of HSK's training speed in docs/results/hsk.md, for `studies.tables`."""

from __future__ import annotations

from pocketbert_bench import results
from studies.hsk.store_table import PAGE
from studies.marked_block import MarkedBlock
from studies.score_cells import NOTHING

BLOCK = MarkedBlock(
    path=PAGE,
    name="SPEED",
    origin="python -m studies.tables from benchmarks/studies/results/hsk/speed.json",
)


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    lines = ["| Batch x tokens | Metric | Ours ÷ baseline (95 % CI) | Target | Met |", "|---|---|---:|---:|---|"]
    for ratio in content.ratios:
        kind, _, where = ratio.name.partition(", ")
        metric = {
            "speed": f"speed {ratio.ours}, against {ratio.peer}",
            "bound": "teacher and step from the store, against the step",
            "decoding": "reading and decoding, against the step",
        }.get(kind, f"{ratio.name}, against the store's size")
        low, high = ratio.interval
        digits = ".2f" if ratio.value >= 0.1 else ".4f"
        value = f"{ratio.value:{digits}} ({low:{digits}}–{high:{digits}})"
        # The strategy is part of the baseline's name.
        where = where.removesuffix(", att-no-sep") or NOTHING
        lines.append(f"| {where} | {metric} | {value} | {' | '.join(_target(ratio))} |")
    each = {ratio.name: ratio.description for ratio in content.ratios if ratio.name.startswith("decoding")}
    lines += ["", *(f"- {name}: {text}." for name, text in each.items()), *(f"- {note}" for note in content.notes)]
    return "\n".join(lines) + "\n"


def _target(ratio: results.Ratio) -> tuple[str, str]:
    if ratio.target is None:
        return NOTHING, NOTHING
    return f"{'≤' if ratio.better == 'lower' else '≥'} {ratio.target:g}", "yes" if ratio.met else "no"
