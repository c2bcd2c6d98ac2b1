"""The tables in docs/results/mobilebert.md, for `studies.tables`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from studies.experiment import TRAINED, failures
from studies.glue_examples import APART, APART_SPLIT, DEVELOPMENT_SPLIT
from studies.marked_block import MarkedBlock
from studies.mobilebert.accuracy import (
    ATTENTION,
    MAJORITY,
    NOBODY,
    STUDENT_MODEL,
    TEACHER,
    TEACHER_MODEL,
    TEXT,
    job_name,
    scoring_jobs,
)
from studies.mobilebert.accuracy_jobs import DEV_TEXT, LIKELIHOOD, NEARNESS, NEXT, WORDS
from studies.mobilebert.recipe import SEEDS, TASKS, VARIANTS
from studies.quantized import QUANTIZED
from studies.score_cells import NOTHING, Values, cell, difference

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "mobilebert.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/mobilebert/accuracy.json",
)
UNTRAINED, UNTAUGHT, PD, COPIED = "never pretrained", "no distillation", "PD", "PD, copied embedding and heads"
PROGRESSIVE, AUXILIARY = "progressive (PD, FMT, AT)", "auxiliary"
Paper = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Score:
    """A column: its scores and their format.

    Attributes:
      head: header of the column.
      task: task of the scores, or name of another measurement.
      metric: metric of the scores.
      split: split of the scores.
      nats: whether the scores are exp(−nats), to be shown in nats; otherwise they are shown in percent.
      digits: format of a number.
    """

    head: str
    task: str
    metric: str
    split: str
    nats: bool = False
    digits: str = ".1f"


LOSS = Score(head="MLM loss (nats)", task=TEXT, metric=LIKELIHOOD, split=DEV_TEXT, nats=True, digits=".2f")
MLM_ACCURACY = Score(head="MLM accuracy", task=TEXT, metric=WORDS, split=DEV_TEXT)
NEXT_SENTENCES = Score(head="NSP accuracy", task=TEXT, metric=NEXT, split=DEV_TEXT)
ATTENTION_NATS = Score(
    head="Attention KL (nats)", task=ATTENTION, metric=NEARNESS, split=DEV_TEXT, nats=True, digits=".3f"
)
ON_TASKS = (
    Score(head="SST-2", task="sst2", metric="accuracy", split=DEVELOPMENT_SPLIT),
    Score(head=f"SST-2, {APART:,} others", task="sst2", metric="accuracy", split=APART_SPLIT),
    Score(head="MRPC", task="mrpc", metric="accuracy", split=DEVELOPMENT_SPLIT),
)
COLUMNS = (LOSS, MLM_ACCURACY, NEXT_SENTENCES, ATTENTION_NATS, *ON_TASKS)
# Columns to compare variants by.
COMPARED = (MLM_ACCURACY, *ON_TASKS)

# The paper's accuracies on SST-2 and MRPC, for our variants of its rows.
STRATEGIES: dict[str, Paper | None] = {
    MAJORITY: None,
    UNTRAINED: None,
    PD: None,
    COPIED: None,
    AUXILIARY: (91.9, 86.8),
    "auxiliary, copied embedding and heads": None,
    "joint": (92.0, 87.5),
    PROGRESSIVE: (92.1, 87.5),
}
LOSSES: dict[str, Paper | None] = {
    TEACHER: (94.1, 87.3),
    UNTAUGHT: (90.1, 84.3),
    PD: (91.7, 85.5),
    "progressive without AT": (92.2, 87.0),
    PROGRESSIVE: (92.5, 87.0),
    "progressive without FMT": None,
    "progressive without PD": None,
}
# Question, the paper's differences on SST-2 and MRPC, and two variants; the first must be better for yes.
QUESTIONS = {
    "Does copying embedding and heads help? (not in the paper)": (COPIED, PD),
    "Does progressive transfer help beyond copying? (not in the paper)": (PROGRESSIVE, COPIED),
    "Does auxiliary transfer help without copying? (not in the paper)": (AUXILIARY, PD),
    "Does auxiliary transfer help with copying? (not in the paper)": ("auxiliary, copied embedding and heads", COPIED),
    "Is joint transfer better than auxiliary? (table 8: +0.1, +0.7; joint copies, auxiliary does not)": (
        "joint",
        AUXILIARY,
    ),
    "Is joint transfer better than auxiliary with the same copy? (not in the paper)": (
        "joint",
        "auxiliary, copied embedding and heads",
    ),
    "Is progressive transfer better than joint? (table 8: +0.1, +0.0)": (PROGRESSIVE, "joint"),
    "Does PD help a student with new weights? (table 9: +1.6, +1.2)": (PD, UNTAUGHT),
    "Does PD help after transfer? (not in the paper)": (PROGRESSIVE, "progressive without PD"),
    "Does FMT help? (table 9, in addition to PD: +0.5, +1.5; here in addition to PD and AT)": (
        PROGRESSIVE,
        "progressive without FMT",
    ),
    "Does AT help in addition to both? (table 9: +0.3, +0.0)": (PROGRESSIVE, "progressive without AT"),
}
# Table 6: float and quantized.
PAPER_QUANTIZED = {"MobileBERT": ((92.1, 87.5), (91.9, 87.0)), "MobileBERT-TINY": ((91.6, 86.7), (91.6, 86.3))}

# Values by seed of a row, a column and a recipe.
Look = Callable[[str, Score, str], Values]


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    look, failed = _look(content), failures(content)
    lines = ["Strategies, table 8 of the paper:", "", *_rows(STRATEGIES, look, failed)]
    lines += ["", "Losses, table 9:", "", *_rows(LOSSES, look, failed)]
    lines += ["", f"| Question (difference) | {' | '.join(each.head for each in COMPARED)} |"]
    lines.append("|---|" + "---:|" * len(COMPARED))
    for question, variants in QUESTIONS.items():
        cells = [
            difference(*(look(variant, column, TRAINED) for variant in variants)) or NOTHING for column in COMPARED
        ]
        lines.append(f"| {question} | {' | '.join(cells)} |")
    lines += ["", f"Float against int8 (`{QUANTIZED}`), table 6:", "", *_quantized_rows(look, failed)]
    examples = {(each.task, each.split): each.examples for each in content.accuracies}
    counted = ", ".join(
        f"{column.head} {examples[column.task, column.split]:,}"
        for column in (MLM_ACCURACY, ATTENTION_NATS, *ON_TASKS)
        if (column.task, column.split) in examples
    )
    lines += ["", f"Examples: {counted or 'none yet'}."]
    if failed:
        lines += [
            "",
            "Failed jobs of this run:",
            "",
            *(f"- `{name}`: {why}" for name, why in failed.items()),
        ]
    return "\n".join(lines) + "\n"


def _look(content: results.ResultFile) -> Look:
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for each in content.accuracies:
        label, separator, seed = each.label.rpartition(", seed ")
        key = (each.model, label if separator else each.label, each.task, each.metric, each.split, each.recipe)
        found.setdefault(key, {})[seed if separator else ""] = each.value

    def look(label: str, column: Score, recipe: str) -> Values:
        return found.get((_model(label), label, column.task, column.metric, column.split, recipe), {})

    return look


def _rows(rows: Mapping[str, Paper | None], look: Look, failed: Mapping[str, str]) -> list[str]:
    heads = [*(column.head for column in COLUMNS), *(f"Paper: {GLUE[task].folder}" for task in TASKS)]
    lines = [f"| Variant | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for label, paper in rows.items():
        cells = [_cell(label, column, TRAINED, look, failed) for column in COLUMNS]
        cells += [NOTHING] * len(TASKS) if paper is None else [f"{value:.1f}" for value in paper]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _quantized_rows(look: Look, failed: Mapping[str, str]) -> list[str]:
    heads = [f"{column.head} | int8 | Difference" for column in ON_TASKS]
    lines = [f"| Variant | {' | '.join(heads)} |", "|---|" + "---:|" * (3 * len(ON_TASKS))]
    for label in (TEACHER, *(variant.label for variant in VARIANTS)):
        cells = []
        for column in ON_TASKS:
            cells += [_cell(label, column, recipe, look, failed) for recipe in (TRAINED, QUANTIZED)]
            cells.append(difference(look(label, column, QUANTIZED), look(label, column, TRAINED)) or NOTHING)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    for name, both in PAPER_QUANTIZED.items():
        sst2, mrpc = (f"{old:.1f} | {new:.1f} | {new - old:+.1f}" for old, new in zip(*both, strict=True))
        lines.append(f"| Paper: {name} | {sst2} | {NOTHING} | {NOTHING} | {NOTHING} | {mrpc} |")
    return lines


def _cell(label: str, column: Score, recipe: str, look: Look, failed: Mapping[str, str]) -> str:
    scores = look(label, column, recipe).values()
    values = [-math.log(value) if column.nats else 100 * value for value in scores]
    once = label in (TEACHER, MAJORITY)
    names = [
        name
        for name, (model, made_by, task, _) in scoring_jobs().items()
        if (model, made_by) == (_model(label), label) and task == column.task
    ]
    # A student that failed has no scores on tasks either.
    students = () if once else [job_name(STUDENT_MODEL, label, TEXT, seed) for seed in SEEDS]
    count = len(failed.keys() & {*names, *students})
    return cell(
        values,
        1 if once else len(SEEDS),
        unit=1.0,
        digits=column.digits,
        failed=count,
    )


def _model(label: str) -> str:
    return {TEACHER: TEACHER_MODEL, MAJORITY: NOBODY}.get(label, STUDENT_MODEL)
