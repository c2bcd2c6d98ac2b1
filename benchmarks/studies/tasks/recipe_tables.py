"""The tables in docs/results/recipes.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert_bench import results
from pocketbert_bench.results import Ratio
from studies.comparisons_table import target_cells
from studies.marked_block import MarkedBlock
from studies.tasks.recipe_scores import MODEL
from studies.tasks.recipes import BASELINE, NAIVE, STATIC

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "recipes.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/tasks/recipes.json",
)


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    ratios = {each.name: each for each in content.ratios}
    lines = [
        f"| Network | Recipe | MB | ms | Ratio to `{BASELINE}` (95 % CI) | Memory growth, MB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for each in content.measurements:
        assert each.summary is not None
        assert each.size_bytes is not None
        ratio = ratios.get(f"{each.model} {each.recipe}")
        memory = "–"
        if each.peak_memory_bytes is not None and each.base_memory_bytes is not None:
            memory = f"{(each.peak_memory_bytes - each.base_memory_bytes) / 1e6:.0f}"
        lines.append(
            f"| `{each.model}` | {_recipe(each.recipe)} | {each.size_bytes / 1e6:.1f} "
            f"| {each.summary.median_us / 1000:.2f} | {_value(ratio) if ratio else '1'} | {memory} |"
        )
    naive = [each for name, each in ratios.items() if name.endswith(f" to {NAIVE}")]
    if naive:
        lines += ["", f"`{STATIC}` against TensorFlow's converter with every operator in int8:", ""]
        lines += ["| Network | Ours ÷ baseline (95 % CI) | Target | Met |", "|---|---:|---|---|"]
    for found in naive:
        lines.append(f"| `{found.name.split()[0]}` | {_value(found)} | {' | '.join(target_cells(found))} |")
    float_scores = {(each.task, each.examples): each.value for each in content.accuracies if each.label == MODEL}
    lines += ["", "Dev scores of the 6x384 network (6 layers, width 384), fine-tuned on each task:", ""]
    lines += ["| Task | Recipe | Examples | Score, % | Points lost |", "|---|---|---:|---:|---:|"]
    for score in content.accuracies:
        before = float_scores[score.task, score.examples]
        lost = "–" if score.label == MODEL else f"{100 * (before - score.value) + 0.0:+.2f}"
        name = "float model" if score.label == MODEL else _recipe(score.recipe)
        task = f"{score.task} ({score.metric})"
        lines.append(f"| {task} | {name} | {score.examples} | {100 * score.value:.2f} | {lost} |")
    quick = " A shortened run." if content.quick else ""
    lines += ["", f"Measured on {content.machine.cpu}, {content.created[:10]}.{quick}", ""]
    lines += [f"- {note}" for note in content.notes]
    return "\n".join(lines) + "\n"


def _recipe(name: str) -> str:
    return "every operator int8, by TensorFlow's converter" if name == NAIVE else f"`{name}`"


def _value(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} ({ratio.interval[0]:.2f} to {ratio.interval[1]:.2f})"
