"""Writes the table of docs/tinybert-results.md from its committed result file: `python tools/result_tables.py`.

A test holds the page to what this prints.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from marked_block import Block
from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.experiments.tinybert import ARMS, EXPERIMENT, SEEDS, TASKS
from pocketbert_bench.quickstart_training import NETWORK

BLOCK = Block(
    path=Path(__file__).resolve().parents[1] / "docs" / "tinybert-results.md",
    name="TABLE",
    origin="tools/result_tables.py from benchmarks/results/tinybert.json",
)

GENERAL, FRESH, PREDICTION = "general distillation, two steps", "two steps, no general distillation", "prediction only"
# What the paper finds, and which of two arms of 4x312 has to be better for it.
FINDINGS = {
    "TinyBERT beats a student without distillation (table 1)": (GENERAL, "fine-tuned, no distillation"),
    "intermediate layers help beside the prediction (table 3)": (GENERAL, f"general distillation, {PREDICTION}"),
    "general distillation helps (table 2: MRPC +1.7, CoLA +10.0)": (GENERAL, FRESH),
    "augmentation helps (table 2: MRPC +3.4, CoLA +21.0)": (f"{GENERAL}, augmented", GENERAL),
}

Scores = dict[tuple[str, str, str], list[float]]


def table(content: results.ResultFile) -> str:
    """The text between the page's marks."""
    scores = _scores(content)
    heads = [f"{GLUE[task].folder} ({GLUE[task].main_metric})" for task in TASKS]
    lines = [f"| student | made by | {' | '.join(heads)} |", "|---|---|" + "---:|" * len(TASKS)]
    rows = [(NETWORK, "teacher"), *((shape, arm.label) for shape, arms in ARMS.items() for arm in arms)]
    for model, label in rows:
        cells = [_cell(scores.get((model, label, task), []), 1 if label == "teacher" else len(SEEDS)) for task in TASKS]
        lines.append(f"| {model} | {label} | {' | '.join(cells)} |")
    lines += ["", "| the paper finds | here, of 4x312: difference of means |", "|---|---|"]
    for finding, (better, worse) in FINDINGS.items():
        differences = []
        for task in TASKS:
            ours, others = scores.get(("4x312", better, task)), scores.get(("4x312", worse, task))
            if ours and others:
                difference = 100 * (statistics.fmean(ours) - statistics.fmean(others))
                differences.append(f"{GLUE[task].folder} {difference:+.1f}")
        lines.append(f"| {finding} | {', '.join(differences) or 'not measured'} |")
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{GLUE[task].folder} {examples[task]:,}" for task in TASKS if task in examples)
    lines += ["", f"Development examples: {counted}.", "", f"`{content.notes[0]}`"]
    return "\n".join(lines) + "\n"


def _scores(content: results.ResultFile) -> Scores:
    """(model, arm, task) → the main metric of each seed."""
    found: Scores = {}
    for each in content.accuracies:
        if each.metric == GLUE[each.task].main_metric:
            label = each.label.rpartition(", seed ")[0] or each.label
            found.setdefault((each.model, label, each.task), []).append(each.value)
    return found


def _cell(values: list[float], seeds: int) -> str:
    """Mean and standard deviation in hundredths; how many seeds, where some are missing."""
    if not values:
        return "–"
    text = f"{100 * statistics.fmean(values):.1f}"
    if len(values) > 1:
        text += f" ± {100 * statistics.stdev(values):.1f}"
    return text if len(values) == seeds else f"{text} ({len(values)} of {seeds})"


if __name__ == "__main__":
    BLOCK.write(table(results.read(EXPERIMENT.result)))
