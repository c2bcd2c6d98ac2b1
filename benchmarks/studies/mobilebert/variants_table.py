"""The table in docs/results/mobilebert-variants.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert_bench import results
from studies.marked_block import MarkedBlock
from studies.mobilebert.variants import RECIPES, VARIANTS

_ROOT = Path(__file__).resolve().parents[3]
BLOCK = MarkedBlock(
    path=_ROOT / "docs" / "results" / "mobilebert-variants.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/mobilebert/variants.json",
)


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    heads = [f"{recipe}, ms | Ratio" for recipe in RECIPES]
    lines = [
        f"| Norm & activation | {' | '.join(heads)} | Paper, ms | Ratio |",
        "|---|" + "---:|" * (2 * len(RECIPES) + 2),
    ]
    found = {(each.model, each.recipe): each for each in content.measurements}
    ratios = {each.name: each for each in content.ratios}
    for variant in VARIANTS:
        cells = []
        for recipe in RECIPES:
            summary, ratio = found[variant.name, recipe].summary, ratios.get(f"{variant.name}, {recipe}")
            assert summary is not None
            cells.append(f"{summary.median_us / 1000:.1f}")
            cells.append(f"{ratio.value:.2f} ({ratio.interval[0]:.2f} to {ratio.interval[1]:.2f})" if ratio else "1")
        paper = [f"{variant.paper_ms:.0f}", f"{variant.paper_ms / VARIANTS[0].paper_ms:.2f}"]
        lines.append(f"| {variant.name} | {' | '.join(cells + paper)} |")
    quick = (
        " A shortened run with fewer layers: the milliseconds are not the network's, and the ratios are a first look."
        if content.quick
        else ""
    )
    lines += ["", f"Measured on {content.machine.cpu}, 1 thread, {content.created[:10]}.{quick}", ""]
    lines += [f"{note}" for note in content.notes]
    return "\n".join(lines) + "\n"
