"""The tables in docs/results/minilmv2.md, for `studies.tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.experiment import MAJORITY, NOBODY
from studies.marked_block import MarkedBlock
from studies.minilmv2.accuracy import (
    ABLATED,
    ABLATION_TASKS,
    ALL_PAIRS,
    FEWER_HEADS,
    LAYERS,
    MAIN,
    MINILM,
    MINILM_UPPER,
    MINILMV2,
    QK_VV,
    RANDOM,
    SEEDS,
    TASKS,
    TEACHER_LAYERS,
    TINYBERT,
    TRUNCATED,
    WITHOUT,
    MiniLMv2Variant,
)
from studies.score_cells import NOTHING, Key, cell, difference, scores

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "minilmv2.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/minilmv2/accuracy.json",
)

# Without seeds: model and label.
ONCE = ((NOBODY, MAJORITY), (NETWORK, "teacher"))
# Table of the paper → its rows, by label of this table; `MINILMV2` is the reference.
ABLATION_TABLES: dict[str, dict[str, MiniLMv2Variant]] = {
    "Relations (table 7)": {
        "Q-Q + K-K + V-V": MINILMV2,
        **{variant.label: variant for variant in (*WITHOUT.values(), QK_VV)},
    },
    "More relations (table 10)": {ALL_PAIRS.label: ALL_PAIRS},
    "Relation heads (table 8)": {"48": MINILMV2, **{str(heads): each for heads, each in FEWER_HEADS.items()}},
    "Teacher's layer (figure 2)": {
        f"{TEACHER_LAYERS}, the last one": MINILMV2,
        **{str(layer): each for layer, each in LAYERS.items()},
    },
    "MiniLM v1 (table 4)": {"last layer": MINILM, "upper middle layer": MINILM_UPPER},
}
# The paper's findings; the first variant must be better to confirm.
FINDINGS: dict[str, tuple[MiniLMv2Variant, MiniLMv2Variant]] = {
    "MiniLMv2 beats a truncated teacher (table 1)": (MINILMV2, TRUNCATED),
    "MiniLMv2 beats TinyBERT's general distillation (table 1)": (MINILMV2, TINYBERT),
    "distillation helps": (MINILMV2, RANDOM),
    "MiniLMv2 beats MiniLM v1 (table 4)": (MINILMV2, MINILM),
    "Q-Q, K-K and V-V beat Q-K and V-V (table 7)": (MINILMV2, QK_VV),
    "48 relation heads beat 6 (table 8)": (MINILMV2, FEWER_HEADS[6]),
    "nine pairs beat three (table 10)": (ALL_PAIRS, MINILMV2),
}


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = scores(each for each in content.accuracies if each.metric == GLUE[each.task].main_metric)
    lines = _main_table(found) + _ablation_table(found) + _findings(found)
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{GLUE[task].folder} {examples[task]:,}" for task in TASKS if task in examples)
    return "\n".join([*lines, "", f"Dev examples: {counted}."]) + "\n"


def _main_table(found: Mapping[Key, Mapping[str, float]]) -> list[str]:
    lines = _header(["Student", "Start"], TASKS)
    rows = [*ONCE, *((shape, variant.label) for shape, variants in MAIN.items() for variant in variants)]
    for model, label in rows:
        seeds = 1 if (model, label) in ONCE else len(SEEDS)
        cells = [cell(found.get((model, label, task), {}).values(), seeds) for task in TASKS]
        lines.append(f"| {model} | {label} | {' | '.join(cells)} |")
    return lines


def _ablation_table(found: Mapping[Key, Mapping[str, float]]) -> list[str]:
    lines = ["", *_header([f"Ablation, {ABLATED}", "Variant"], ABLATION_TASKS)]
    for title, rows in ABLATION_TABLES.items():
        for label, variant in rows.items():
            # One seed, also where the reference has more.
            values = [found.get((ABLATED, variant.label, task), {}).get(str(SEEDS[0])) for task in ABLATION_TASKS]
            cells = [NOTHING if value is None else f"{100 * value:.1f}" for value in values]
            lines.append(f"| {title} | {label} | {' | '.join(cells)} |")
    return lines


def _findings(found: Mapping[Key, Mapping[str, float]]) -> list[str]:
    lines = ["", f"| Finding of the paper | Difference with {ABLATED} |", "|---|---|"]
    for finding, variants in FINDINGS.items():
        differences = []
        for task in TASKS:
            if change := difference(*(found.get((ABLATED, variant.label, task), {}) for variant in variants)):
                differences.append(f"{GLUE[task].folder} {change}")
        lines.append(f"| {finding} | {', '.join(differences) or 'not measured'} |")
    return lines


def _header(heads: Sequence[str], tasks: Sequence[str]) -> list[str]:
    scored = [f"{GLUE[task].folder} ({GLUE[task].main_metric})" for task in tasks]
    return [f"| {' | '.join([*heads, *scored])} |", "|---|---|" + "---:|" * len(tasks)]
