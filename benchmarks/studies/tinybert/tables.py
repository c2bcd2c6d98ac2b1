"""The tables in docs/results/tinybert.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.experiment import MAJORITY, NOBODY
from studies.marked_block import MarkedBlock
from studies.runner import RESULTS
from studies.score_cells import cell, difference, scores
from studies.tinybert.accuracy import SEEDS, TASKS, VARIANTS

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "tinybert.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/tinybert/accuracy.json",
)

# Without seeds: model and label.
ONCE = ((NOBODY, MAJORITY), (NETWORK, "teacher"))
GENERAL, FRESH, PREDICTION = "general distillation, two steps", "two steps, no general distillation", "prediction only"
# The paper's findings, and two variants of 4x312; the first must be better to confirm.
FINDINGS = {
    "TinyBERT beats a student without distillation (table 1)": (GENERAL, "fine-tuned, no distillation"),
    "intermediate layers improve on prediction alone (table 3)": (GENERAL, f"general distillation, {PREDICTION}"),
    "general distillation helps (table 2: MRPC +1.7, CoLA +10.0)": (GENERAL, FRESH),
    "augmentation helps (table 2: MRPC +3.4, CoLA +21.0)": (f"{GENERAL}, augmented", GENERAL),
}


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = scores(each for each in content.accuracies if each.metric == GLUE[each.task].main_metric)
    heads = [f"{GLUE[task].folder} ({GLUE[task].main_metric})" for task in TASKS]
    lines = [f"| Student | Variant | {' | '.join(heads)} |", "|---|---|" + "---:|" * len(TASKS)]
    rows = [*ONCE, *((shape, variant.label) for shape, variants in VARIANTS.items() for variant in variants)]
    for model, label in rows:
        cells = [
            cell(found.get((model, label, task), {}).values(), 1 if (model, label) in ONCE else len(SEEDS))
            for task in TASKS
        ]
        lines.append(f"| {model} | {label} | {' | '.join(cells)} |")
    lines += ["", "| Finding of the paper | Difference with 4x312 |", "|---|---|"]
    for finding, variants in FINDINGS.items():
        differences = []
        for task in TASKS:
            if change := difference(*(found.get(("4x312", variant, task), {}) for variant in variants)):
                differences.append(f"{GLUE[task].folder} {change}")
        lines.append(f"| {finding} | {', '.join(differences) or 'not measured'} |")
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{GLUE[task].folder} {examples[task]:,}" for task in TASKS if task in examples)
    masked_lm = results.read(RESULTS / "tinybert" / "masked_lm.json").notes[0]
    lines += ["", f"Dev examples: {counted}. Head for augmentation: {masked_lm}."]
    return "\n".join(lines) + "\n"
