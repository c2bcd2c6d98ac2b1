"""The table in docs/results/tasks.md, for `studies.tables`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pocketbert_bench import results
from studies.experiment import TRAINED
from studies.marked_block import MarkedBlock
from studies.quantized import QUANTIZED
from studies.score_cells import NOTHING
from studies.tasks.accuracy import MOST_ANSWERS, MOST_POINTS, NOBODY, SETTINGS

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "tasks.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/tasks/accuracy.json",
)
# Metrics that are a fraction of the examples.
_COUNTED = ("accuracy", "exact_match")


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = {(each.task, each.metric, each.recipe): each for each in content.accuracies if each.model != NOBODY}
    constant = {each.task: each for each in content.accuracies if each.model == NOBODY}
    lines = [
        f"| Task | Training examples | Dev examples | Metric | Baseline | Float | `{QUANTIZED}` | Points lost "
        "| Correct predictions lost | Verdict |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    for task, setting in SETTINGS.items():
        first, second = (found.get((task, setting.metric, recipe)) for recipe in (TRAINED, QUANTIZED))
        if first is None or second is None:
            lines.append(f"| {setting.title} | {NOTHING} | {NOTHING} | {setting.metric} |" + f" {NOTHING} |" * 5 + " |")
            continue
        points, answers = 100 * (first.value - second.value), answers_lost(found, task)
        within = points <= MOST_POINTS + 1e-9 or (answers is not None and answers <= MOST_ANSWERS)
        verdict, guess = "within" if within else "**beyond**", NOTHING
        if task in constant:
            guess = f"{100 * constant[task].value:.2f}"
            # A model without skill has nothing to lose.
            verdict = "**nothing learned**" if first.value <= constant[task].value else verdict
        lines.append(
            f"| {setting.title} | {int(first.label.split()[0]):,} | {first.examples:,} | {setting.metric} "
            f"| {guess} | {100 * first.value:.2f} | {100 * second.value:.2f} | {round(points, 2) + 0.0:+.2f} "
            f"| {NOTHING if answers is None else f'{answers:+d}'} | {verdict} |"
        )
    return "\n".join(lines) + "\n"


def answers_lost(found: Mapping[tuple[str, str, str], results.Accuracy], task: str) -> int | None:
    """Number of correct predictions that the bundle loses; None if no score counts them.

    Args:
      found: scores by task, metric and recipe.
      task: a key of `SETTINGS`.
    """
    for metric in _COUNTED:
        both = [found.get((task, metric, recipe)) for recipe in (TRAINED, QUANTIZED)]
        if both[0] is not None and both[1] is not None:
            return round((both[0].value - both[1].value) * both[0].examples)
    return None
