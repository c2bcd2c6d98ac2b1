"""The table of recipes in docs/results/mobilebert.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert_bench import results
from studies.marked_block import MarkedBlock

_ROOT = Path(__file__).resolve().parents[3]
BLOCK = MarkedBlock(
    path=_ROOT / "docs" / "results" / "mobilebert.md",
    name="RECIPES",
    origin="python -m studies.tables from benchmarks/studies/results/mobilebert/recipes.json",
)


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    splits = list(dict.fromkeys(each.split for each in content.accuracies))
    found = {(each.label, each.split): each for each in content.accuracies}
    counts = [found["model", split].examples for split in splits]
    heads = [f"{count:,} sentences, % | Points lost" for count in counts]
    lines = [f"| Recipe | {' | '.join(heads)} |", "|---|" + "---:|---:|" * len(splits)]
    for label in dict.fromkeys(each.label for each in content.accuracies):
        cells = []
        for split in splits:
            score, trained = found[label, split].value, found["model", split].value
            cells += [f"{100 * score:.2f}", "–" if label == "model" else f"{100 * (trained - score) + 0.0:+.2f}"]
        name = "float model" if label == "model" else f"`{label}`"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    shown = ", ".join(f"{count:,} sentences: {split}" for count, split in zip(counts, splits, strict=True))
    quick = " A shortened run." if content.quick else ""
    lines += ["", f"{shown}. Measured on {content.machine.cpu}, {content.created[:10]}.{quick}", ""]
    lines += [f"- {note}" for note in content.notes]
    return "\n".join(lines) + "\n"
