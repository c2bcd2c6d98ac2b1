"""The tables of docs/mobilebert-results.md, for `result_tables`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from marked_block import Block
from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.experiments.mobilebert import (
    ARMS,
    ATTENTION,
    SEEDS,
    STUDENT_MODEL,
    TASKS,
    TEACHER_MODEL,
    TEXT,
)
from pocketbert_bench.experiments.quantized import QUANTIZED
from score_cells import NOTHING, Key, cell, difference, scores

BLOCK = Block(
    path=Path(__file__).resolve().parents[1] / "docs" / "mobilebert-results.md",
    name="TABLE",
    origin="tools/result_tables.py from benchmarks/results/mobilebert.json",
)
TEACHER = "teacher"
PD, PROGRESSIVE, PD_FMT = "no transfer (PD)", "progressive (PD, FMT, AT)", "progressive without AT"

# What arms are compared by: name, metric, task.
SCORED = (("masked words", "masked_lm_accuracy", TEXT), *((GLUE[task].folder, "accuracy", task) for task in TASKS))

# Metric → values of each arm and task.
Scores = dict[str, dict[Key, dict[str, float]]]
Paper = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the paper's, and ours that stands for it.

    Attributes:
      label: the arm's.
      paper: accuracy on SST-2 and MRPC; None where the paper has no such row.
    """

    label: str
    paper: Paper | None = None


STRATEGIES = (
    Row(label=PD),
    Row(label="auxiliary", paper=(91.9, 86.8)),
    Row(label="joint", paper=(92.0, 87.5)),
    Row(label=PROGRESSIVE, paper=(92.1, 87.5)),
)
LOSSES = (
    Row(label=TEACHER, paper=(94.1, 87.3)),
    Row(label="bare", paper=(90.1, 84.3)),
    Row(label=PD, paper=(91.7, 85.5)),
    Row(label=PD_FMT, paper=(92.2, 87.0)),
    Row(label=PROGRESSIVE, paper=(92.5, 87.0)),
    Row(label="progressive without FMT"),
    Row(label="progressive without PD"),
)
# What the paper finds on SST-2 and MRPC, and which of two arms has to be better for it.
FINDINGS = {
    "joint transfer is better than auxiliary (table 8: SST-2 +0.1, MRPC +0.7)": ("joint", "auxiliary"),
    "progressive transfer is better than joint (table 8: +0.1, +0.0)": (PROGRESSIVE, "joint"),
    "PD helps (table 9: +1.6, +1.2)": (PD, "bare"),
    "FMT helps beside it (table 9: +0.5, +1.5)": (PD_FMT, PD),
    "AT helps beside both (table 9: +0.3, +0.0)": (PROGRESSIVE, PD_FMT),
}
# Table 6: float and quantized.
PAPER_QUANTIZED = {"MobileBERT": ((92.1, 87.5), (91.9, 87.0)), "MobileBERT-TINY": ((91.6, 86.7), (91.6, 86.3))}


def table(content: results.ResultFile) -> str:
    """The text between the page's marks."""
    found: Scores = {
        metric: scores(each for each in content.accuracies if each.metric == metric and each.recipe != QUANTIZED)
        for metric in sorted({each.metric for each in content.accuracies})
    }
    quantized = scores(each for each in content.accuracies if each.metric == "accuracy" and each.recipe == QUANTIZED)
    trained = found.get("accuracy", {})
    lines = ["Strategies, table 8 of the paper:", "", *_rows(STRATEGIES, found)]
    lines += ["", "Losses, table 9:", "", *_rows(LOSSES, found)]
    lines += ["", "| the paper finds | here: difference of means |", "|---|---|"]
    for finding, (better, worse) in FINDINGS.items():
        differences = []
        for name, metric, task in SCORED:
            values = found.get(metric, {})
            if change := difference(values.get(_key(better, task), {}), values.get(_key(worse, task), {})):
                differences.append(f"{name} {change}")
        lines.append(f"| {finding} | {', '.join(differences) or 'not measured'} |")
    lines += ["", "Float against int8 (`dynamic_wi8`), table 6:", "", *_quantized_rows(trained, quantized)]
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{GLUE[task].folder} {examples[task]:,}" for task in TASKS if task in examples)
    lines += ["", f"Development examples: {counted or 'none yet'}.", "", f"`{content.notes[0]}`"]
    return "\n".join(lines) + "\n"


def _rows(rows: tuple[Row, ...], found: Scores) -> list[str]:
    heads = [GLUE[task].folder for task in TASKS]
    lines = [
        f"| made by | masked-LM loss, nats | masked words | attention, nats | {' | '.join(heads)} | "
        f"{' | '.join(f'paper: {head}' for head in heads)} |",
        "|---|" + "---:|" * (3 + 2 * len(TASKS)),
    ]
    for row in rows:
        seeds = _seeds(row.label)
        cells = [
            _nats(found, "exp(-masked-LM loss)", row.label, TEXT, ".2f"),
            cell(found.get("masked_lm_accuracy", {}).get(_key(row.label, TEXT), {}).values(), seeds),
            _nats(found, "exp(-attention divergence)", row.label, ATTENTION, ".3f"),
            *(cell(found.get("accuracy", {}).get(_key(row.label, task), {}).values(), seeds) for task in TASKS),
            *([NOTHING] * len(TASKS) if row.paper is None else [f"{value:.1f}" for value in row.paper]),
        ]
        lines.append(f"| {row.label} | {' | '.join(cells)} |")
    return lines


def _quantized_rows(trained: dict[Key, dict[str, float]], quantized: dict[Key, dict[str, float]]) -> list[str]:
    heads = [f"{GLUE[task].folder} | int8 | difference" for task in TASKS]
    lines = [f"| made by | {' | '.join(heads)} |", "|---|" + "---:|" * (3 * len(TASKS))]
    for label in (TEACHER, *(arm.label for arm in ARMS)):
        cells = []
        for task in TASKS:
            before, after = (each.get(_key(label, task), {}) for each in (trained, quantized))
            cells += [cell(values.values(), _seeds(label)) for values in (before, after)]
            cells.append(difference(after, before) or NOTHING)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    for name, both in PAPER_QUANTIZED.items():
        papers = [f"{old:.1f} | {new:.1f} | {new - old:+.1f}" for old, new in zip(*both, strict=True)]
        lines.append(f"| paper: {name} | {' | '.join(papers)} |")
    return lines


def _key(label: str, task: str) -> Key:
    return (TEACHER_MODEL if label == TEACHER else STUDENT_MODEL, label, task)


def _seeds(label: str) -> int:
    return 1 if label == TEACHER else len(SEEDS)


def _nats(found: Scores, metric: str, label: str, task: str, digits: str) -> str:
    """A result file's scores are 1 at best, and these are exp of minus nats."""
    values = found.get(metric, {}).get(_key(label, task), {}).values()
    return cell(map(math.log, values), _seeds(label), unit=-1.0, digits=digits)
