"""The tables in docs/results/embeddings.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert_bench import results
from studies.marked_block import MarkedBlock
from studies.sentence_embeddings import DIMENSIONS, FLOAT, MODEL, NESTED, RECIPE, STUDENT, TEACHER, WIDTH

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "embeddings.md"
_ORIGIN = "python -m studies.tables from benchmarks/studies/results/sentence_embeddings.json"
SCORES_BLOCK = MarkedBlock(path=_PAGE, name="SCORES", origin=_ORIGIN)
SEARCH_BLOCK = MarkedBlock(path=_PAGE, name="SEARCH", origin=_ORIGIN)
_ROWS = ((TEACHER, WIDTH), (STUDENT, WIDTH), (NESTED, WIDTH), *((NESTED, width) for width in DIMENSIONS[::-1]))
_OTHERS = tuple((model, width) for model in (TEACHER, STUDENT) for width in DIMENSIONS[::-1])


def scores_table(content: results.ResultFile) -> str:
    """Writes the table of scores, sizes and latencies."""
    scores = {(each.model, each.recipe, each.metric): each.value for each in content.accuracies}
    measured = {(each.model, each.recipe): each for each in content.measurements}
    slowest = min(measured[TEACHER, FLOAT].latency_us)
    lines = [
        "| Model | Features | Float | `dynamic_wi8` | Mean cosine | Size | Speed-up |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model, width in (*_ROWS, *_OTHERS):
        cells = [f"{100 * scores[model, recipe, f'spearman_at_{width}']:.2f}" for recipe in (MODEL, RECIPE)]
        rest = ["", "", ""]
        if width == WIDTH:
            run = measured[model, RECIPE]
            rest = [
                f"{scores[model, RECIPE, 'mean_cosine']:.4f}",
                f"{(run.size_bytes or 0) / 1e6:.1f} MB",
                f"{slowest / min(run.latency_us):.1f}×",
            ]
        name = model if width == WIDTH else f"{model}, first features"
        lines.append(f"| {name} | {width} | {' | '.join([*cells, *rest])} |")
    return "\n".join(lines) + "\n"


def search_table(content: results.ResultFile) -> str:
    """Writes the table of the search by MediaPipe's client."""
    found = {(each.recipe, each.metric): each.value for each in content.accuracies if each.task == "search"}
    lines = ["| File | Nearest sentence found | Overlap of both top tens |", "|---|---:|---:|"]
    for recipe in (FLOAT, RECIPE):
        cells = " | ".join(f"{100 * found[recipe, metric]:.2f} %" for metric in ("nearest_at_10", "overlap_at_10"))
        lines.append(f"| `{recipe}` | {cells} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in content.notes)]) + "\n"
