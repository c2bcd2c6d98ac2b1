"""The tables of docs/results/mobilebert.md, for `studies.tables`."""

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
    COMMONEST,
    NOBODY,
    STUDENT_MODEL,
    TEACHER,
    TEACHER_MODEL,
    TEXT,
    job_name,
    scoring_jobs,
)
from studies.mobilebert.accuracy_jobs import HELD_OUT, LIKELIHOOD, NEARNESS, NEXT, WORDS
from studies.mobilebert.recipe import SEEDS, TASKS, VARIANTS
from studies.quantized import QUANTIZED
from studies.score_cells import NOTHING, Values, cell, difference

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "mobilebert.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/mobilebert/accuracy.json",
)
UNTRAINED, BARE, PD, COPIED = "never pretrained", "bare", "PD", "PD, copied embedding and heads"
PROGRESSIVE, AUXILIARY = "progressive (PD, FMT, AT)", "auxiliary"
Paper = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Score:
    """A column: which scores are in it, and how they are written.

    Attributes:
      head: the column's.
      task: of the scores, or one of its kind.
      metric: of the scores.
      split: of the scores.
      nats: whether the scores are exp(−nats), and the nats are written; else in hundredths.
      digits: how a number is written.
    """

    head: str
    task: str
    metric: str
    split: str
    nats: bool = False
    digits: str = ".1f"


LOSS = Score(head="masked-LM loss, nats", task=TEXT, metric=LIKELIHOOD, split=HELD_OUT, nats=True, digits=".2f")
MASKED_WORDS = Score(head="masked words", task=TEXT, metric=WORDS, split=HELD_OUT)
NEXT_SENTENCES = Score(head="next sentences", task=TEXT, metric=NEXT, split=HELD_OUT)
ATTENTION_NATS = Score(head="attention, nats", task=ATTENTION, metric=NEARNESS, split=HELD_OUT, nats=True, digits=".3f")
ON_TASKS = (
    Score(head="SST-2", task="sst2", metric="accuracy", split=DEVELOPMENT_SPLIT),
    Score(head=f"SST-2, {APART:,} others", task="sst2", metric="accuracy", split=APART_SPLIT),
    Score(head="MRPC", task="mrpc", metric="accuracy", split=DEVELOPMENT_SPLIT),
)
COLUMNS = (LOSS, MASKED_WORDS, NEXT_SENTENCES, ATTENTION_NATS, *ON_TASKS)
# What variants are compared by.
COMPARED = (MASKED_WORDS, *ON_TASKS)

# The paper's accuracies on SST-2 and MRPC, of our rows that stand for its own.
STRATEGIES: dict[str, Paper | None] = {
    COMMONEST: None,
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
    BARE: (90.1, 84.3),
    PD: (91.7, 85.5),
    "progressive without AT": (92.2, 87.0),
    PROGRESSIVE: (92.5, 87.0),
    "progressive without FMT": None,
    "progressive without PD": None,
}
# The question, the paper's differences on SST-2 and MRPC, and two variants; the first has to be better.
QUESTIONS = {
    "does copying embedding and heads help? (no row in the paper)": (COPIED, PD),
    "does progressive transfer help beyond copying? (no row)": (PROGRESSIVE, COPIED),
    "does auxiliary transfer help, nothing being copied? (no row)": (AUXILIARY, PD),
    "does it, beside the same copy? (no row)": ("auxiliary, copied embedding and heads", COPIED),
    "is joint transfer better than auxiliary? (table 8: +0.1, +0.7; joint copies, auxiliary does not)": (
        "joint",
        AUXILIARY,
    ),
    "the same, both with the copy": ("joint", "auxiliary, copied embedding and heads"),
    "is progressive transfer better than joint? (table 8: +0.1, +0.0)": (PROGRESSIVE, "joint"),
    "does PD help a student that starts afresh? (table 9: +1.6, +1.2)": (PD, BARE),
    "does PD help after transfer? (no row)": (PROGRESSIVE, "progressive without PD"),
    "does FMT help? (table 9, beside PD alone: +0.5, +1.5; here beside PD and AT)": (
        PROGRESSIVE,
        "progressive without FMT",
    ),
    "does AT help beside both? (table 9: +0.3, +0.0)": (PROGRESSIVE, "progressive without AT"),
}
# Table 6: float and quantized.
PAPER_QUANTIZED = {"MobileBERT": ((92.1, 87.5), (91.9, 87.0)), "MobileBERT-TINY": ((91.6, 86.7), (91.6, 86.3))}

# Of a row, a column and a recipe, the values of its seeds.
Look = Callable[[str, Score, str], Values]


def table(content: results.ResultFile) -> str:
    """The text between the page's marks."""
    look, failed = _look(content), failures(content)
    lines = ["Strategies, table 8 of the paper:", "", *_rows(STRATEGIES, look, failed)]
    lines += ["", "Losses, table 9:", "", *_rows(LOSSES, look, failed)]
    lines += ["", f"| here, difference | {' | '.join(each.head for each in COMPARED)} |"]
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
        for column in (MASKED_WORDS, ATTENTION_NATS, *ON_TASKS)
        if (column.task, column.split) in examples
    )
    lines += ["", f"Examples: {counted or 'none yet'}."]
    if failed:
        lines += [
            "",
            "Failed, in the run that wrote this:",
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
    heads = [*(column.head for column in COLUMNS), *(f"paper: {GLUE[task].folder}" for task in TASKS)]
    lines = [f"| made by | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for label, paper in rows.items():
        cells = [_cell(label, column, TRAINED, look, failed) for column in COLUMNS]
        cells += [NOTHING] * len(TASKS) if paper is None else [f"{value:.1f}" for value in paper]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _quantized_rows(look: Look, failed: Mapping[str, str]) -> list[str]:
    heads = [f"{column.head} | int8 | difference" for column in ON_TASKS]
    lines = [f"| made by | {' | '.join(heads)} |", "|---|" + "---:|" * (3 * len(ON_TASKS))]
    for label in (TEACHER, *(variant.label for variant in VARIANTS)):
        cells = []
        for column in ON_TASKS:
            cells += [_cell(label, column, recipe, look, failed) for recipe in (TRAINED, QUANTIZED)]
            cells.append(difference(look(label, column, QUANTIZED), look(label, column, TRAINED)) or NOTHING)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    for name, both in PAPER_QUANTIZED.items():
        sst2, mrpc = (f"{old:.1f} | {new:.1f} | {new - old:+.1f}" for old, new in zip(*both, strict=True))
        lines.append(f"| paper: {name} | {sst2} | {NOTHING} | {NOTHING} | {NOTHING} | {mrpc} |")
    return lines


def _cell(label: str, column: Score, recipe: str, look: Look, failed: Mapping[str, str]) -> str:
    scores = look(label, column, recipe).values()
    values = [-math.log(value) if column.nats else 100 * value for value in scores]
    once = label in (TEACHER, COMMONEST)
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
    return {TEACHER: TEACHER_MODEL, COMMONEST: NOBODY}.get(label, STUDENT_MODEL)
