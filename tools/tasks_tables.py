"""The table of docs/task-results.md, for `result_tables`."""

from __future__ import annotations

from pathlib import Path

from marked_block import Block
from pocketbert_bench import results
from pocketbert_bench.experiments.quantized import QUANTIZED
from pocketbert_bench.experiments.table import TRAINED
from pocketbert_bench.experiments.tasks import MOST_ANSWERS, MOST_POINTS, SETTINGS
from score_cells import NOTHING

BLOCK = Block(
    path=Path(__file__).resolve().parents[1] / "docs" / "task-results.md",
    name="TABLE",
    origin="tools/result_tables.py from benchmarks/results/tasks.json",
)


def table(content: results.ResultFile) -> str:
    """The text between the page's marks."""
    found = {(each.task, each.metric, each.recipe): each for each in content.accuracies}
    lines = [
        f"| task | learned from | scored | metric | float | `{QUANTIZED}` | lost | allowed | |",
        "|---|---:|---:|---|---:|---:|---:|---:|---|",
    ]
    for task, setting in SETTINGS.items():
        both = [found.get((task, setting.metric, recipe)) for recipe in (TRAINED, QUANTIZED)]
        if both[0] is None or both[1] is None:
            lines.append(f"| {setting.title} | {NOTHING} | {NOTHING} | {setting.metric} |" + f" {NOTHING} |" * 4 + " |")
            continue
        values = [100 * each.value for each in both if each is not None]
        lost, allowed = values[0] - values[1], most_lost(both[0].examples)
        verdict = "within" if lost <= allowed + 1e-9 else f"**{lost - allowed:.2f} too much**"
        lines.append(
            f"| {setting.title} | {int(both[0].label.split()[0]):,} | {both[0].examples:,} | {setting.metric} "
            f"| {values[0]:.2f} | {values[1]:.2f} | {lost:+.2f} | {allowed:.2f} | {verdict} |"
        )
    lines += ["", f"`{content.notes[0]}`"]
    return "\n".join(lines) + "\n"


def most_lost(examples: int) -> float:
    """What int8 may lose of a score, in points: `MOST_POINTS`, or `MOST_ANSWERS` answers if that is more."""
    return max(MOST_POINTS, 100 * MOST_ANSWERS / examples)
