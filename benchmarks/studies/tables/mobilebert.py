"""Tables of the sweep of a scaled-down MobileBERT."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pocketbert.data.readers.glue import GLUE
from pocketbert_bench import results
from studies.quantized import QUANTIZED
from studies.sweep import DEVELOPMENT_SET, NOBODY, TEACHER, TRAINED
from studies.tables.render import NOTHING, ScoreTable, Values, cell, difference, page, table

_SEEDS, _TASKS = 2, ("sst2", "mrpc")
_TEACHER_MODEL, _STUDENT_MODEL = "IB-BERT 6x256/384", "MobileBERT 6x256/64"
_MAJORITY = "most frequent token or label"
# Further scores of models: masked LM, and distance of the attention from the teacher's.
_TEXT, _ATTENTION, _DEV_TEXT = "enwiki2015", "attention", "dev articles"
# Sentences of SST-2 that are scored next to the small development set.
_APART = 4000
_APART_SPLIT = f"{_APART} training sentences kept apart"
_COPIED, _AUXILIARY = "PD, copied embedding and heads", "auxiliary"
_AUXILIARY_COPIED, _PROGRESSIVE = "auxiliary, copied embedding and heads", "progressive (PD, FMT, AT)"
Paper = tuple[float, float]


class Score(NamedTuple):
    """A column: header, its scores and their format; with `nats`, scores are exp(−nats), otherwise shares."""

    head: str
    task: str
    metric: str
    split: str
    nats: bool = False
    digits: str = ".1f"


_MLM_ACCURACY = Score(head="MLM accuracy", task=_TEXT, metric="masked_lm_accuracy", split=_DEV_TEXT)
_ATTENTION_NATS = Score(
    "Attention KL (nats)", _ATTENTION, "exp(-attention divergence)", _DEV_TEXT, nats=True, digits=".3f"
)
_ON_TASKS = (
    Score(head="SST-2", task="sst2", metric="accuracy", split=DEVELOPMENT_SET),
    Score(head=f"SST-2, {_APART:,} others", task="sst2", metric="accuracy", split=_APART_SPLIT),
    Score(head="MRPC", task="mrpc", metric="accuracy", split=DEVELOPMENT_SET),
)
_COLUMNS = (
    Score(head="MLM loss (nats)", task=_TEXT, metric="exp(-masked-LM loss)", split=_DEV_TEXT, nats=True, digits=".2f"),
    _MLM_ACCURACY,
    Score(head="NSP accuracy", task=_TEXT, metric="next_sentence_accuracy", split=_DEV_TEXT),
    _ATTENTION_NATS,
    *_ON_TASKS,
)
# Columns to compare variants by.
_COMPARED = (_MLM_ACCURACY, *_ON_TASKS)

# The paper's accuracies on SST-2 and MRPC, for our variants of its rows.
_STRATEGIES: dict[str, Paper | None] = {
    _MAJORITY: None,
    "never pretrained": None,
    "PD": None,
    _COPIED: None,
    _AUXILIARY: (91.9, 86.8),
    _AUXILIARY_COPIED: None,
    "joint": (92.0, 87.5),
    _PROGRESSIVE: (92.1, 87.5),
}
_LOSSES: dict[str, Paper | None] = {
    TEACHER: (94.1, 87.3),
    "no distillation": (90.1, 84.3),
    "PD": (91.7, 85.5),
    "progressive without AT": (92.2, 87.0),
    _PROGRESSIVE: (92.5, 87.0),
    "progressive without FMT": None,
    "progressive without PD": None,
}
_STUDENTS = (
    "never pretrained",
    "no distillation",
    _PROGRESSIVE,
    _COPIED,
    "PD",
    "joint",
    "progressive without FMT",
    "progressive without AT",
    "progressive without PD",
    _AUXILIARY,
    _AUXILIARY_COPIED,
)
# Question, the paper's differences on SST-2 and MRPC, and two variants; the first must be better for yes.
_QUESTIONS = {
    "Does copying embedding and heads help? (not in the paper)": (_COPIED, "PD"),
    "Does progressive transfer help beyond copying? (not in the paper)": (_PROGRESSIVE, _COPIED),
    "Does auxiliary transfer help without copying? (not in the paper)": (_AUXILIARY, "PD"),
    "Does auxiliary transfer help with copying? (not in the paper)": (_AUXILIARY_COPIED, _COPIED),
    "Is joint transfer better than auxiliary? (table 8: +0.1, +0.7; joint copies, auxiliary does not)": (
        "joint",
        _AUXILIARY,
    ),
    "Is joint transfer better than auxiliary with the same copy? (not in the paper)": ("joint", _AUXILIARY_COPIED),
    "Is progressive transfer better than joint? (table 8: +0.1, +0.0)": (_PROGRESSIVE, "joint"),
    "Does PD help a student with new weights? (table 9: +1.6, +1.2)": ("PD", "no distillation"),
    "Does PD help after transfer? (not in the paper)": (_PROGRESSIVE, "progressive without PD"),
    "Does FMT help? (table 9, in addition to PD: +0.5, +1.5; here in addition to PD and AT)": (
        _PROGRESSIVE,
        "progressive without FMT",
    ),
    "Does AT help in addition to both? (table 9: +0.3, +0.0)": (_PROGRESSIVE, "progressive without AT"),
}
# Table 6: float and quantized.
_PAPER_QUANTIZED = {"MobileBERT": ((92.1, 87.5), (91.9, 87.0)), "MobileBERT-TINY": ((91.6, 86.7), (91.6, 86.3))}


class _Results(NamedTuple):
    """Scores of the variants."""

    scores: ScoreTable

    def values(self, label: str, column: Score, recipe: str = TRAINED) -> Values:
        """Seed → score of a row."""
        model = {TEACHER: _TEACHER_MODEL, _MAJORITY: NOBODY}.get(label, _STUDENT_MODEL)
        return self.scores.values(model, label, column.task, column.metric, column.split, recipe)

    def cell(self, label: str, column: Score, recipe: str = TRAINED) -> str:
        """Mean and standard deviation of a row."""
        return cell(
            [-math.log(value) if column.nats else 100 * value for value in self.values(label, column, recipe).values()],
            1 if label in (TEACHER, _MAJORITY) else _SEEDS,
            unit=1.0,
            digits=column.digits,
        )


def text(content: results.ResultFile) -> str:
    """Strategies, losses, questions, and float against int8."""
    measured = _Results(ScoreTable(content.accuracies))
    questions = []
    for question, (first, second) in _QUESTIONS.items():
        changes = [difference(measured.values(first, column), measured.values(second, column)) for column in _COMPARED]
        questions.append((question, *(change or NOTHING for change in changes)))
    examples = {(record.task, record.split): record.examples for record in content.accuracies}
    counts = ", ".join(
        f"{column.head} {examples[column.task, column.split]:,}"
        for column in (_MLM_ACCURACY, _ATTENTION_NATS, *_ON_TASKS)
        if (column.task, column.split) in examples
    )
    return page(
        ["Strategies, table 8 of the paper:"],
        _variants(_STRATEGIES, measured),
        ["Losses, table 9:"],
        _variants(_LOSSES, measured),
        table(["Question (difference)", *(f">{column.head}" for column in _COMPARED)], questions),
        [f"Float against int8 (`{QUANTIZED}`), table 6:"],
        _quantized(measured),
        [f"Examples: {counts or 'none yet'}."],
    )


def _variants(rows: Mapping[str, Paper | None], measured: _Results) -> list[str]:
    cells = []
    for label, paper in rows.items():
        printed = [NOTHING] * len(_TASKS) if paper is None else [f"{value:.1f}" for value in paper]
        cells.append((label, *(measured.cell(label, column) for column in _COLUMNS), *printed))
    heads = [*(column.head for column in _COLUMNS), *(f"Paper: {GLUE[task].folder}" for task in _TASKS)]
    return table(["Variant", *(f">{head}" for head in heads)], cells)


def _quantized(measured: _Results) -> list[str]:
    rows: list[Sequence[str]] = []
    for label in (TEACHER, *_STUDENTS):
        cells = [label]
        for column in _ON_TASKS:
            change = difference(measured.values(label, column, QUANTIZED), measured.values(label, column))
            cells += [measured.cell(label, column), measured.cell(label, column, QUANTIZED), change or NOTHING]
        rows.append(cells)
    for name, both in _PAPER_QUANTIZED.items():
        sst2, mrpc = ((f"{old:.1f}", f"{new:.1f}", f"{new - old:+.1f}") for old, new in zip(*both, strict=True))
        rows.append((f"Paper: {name}", *sst2, NOTHING, NOTHING, NOTHING, *mrpc))
    heads = [head for column in _ON_TASKS for head in (f">{column.head}", ">int8", ">Difference")]
    return table(["Variant", *heads], rows)
