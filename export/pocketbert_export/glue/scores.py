"""GLUE scores on the development sets, with the published columns and averages.

Two averages are in use; they differ for the same predictions:
papers  mean of nine columns, with MNLI-m and MNLI-mm as two of them, F1 for QQP and MRPC, and Spearman correlation
        for STS-B (BERT, Devlin et al. 2019; TinyBERT, Jiao et al. 2020; EfficientBERT, Dong et al. 2021).
glue    mean over tasks, as on the leaderboard; a task's score is the mean of its metrics (F1 and accuracy; Pearson and
        Spearman; matched and mismatched). Here it covers eight tasks, without WNLI. The leaderboard includes WNLI, as
        does the GLUE column of MobileBERT's table (Sun et al. 2020).
Neither average here includes WNLI, because its development set is not informative; see docs/how-to/glue.md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.progress import log_info
from pocketbert.tasks.registry import text_task
from pocketbert.tasks.scores import Scores
from pocketbert_export.glue.models import GlueModel, check_models

# Task → split → metric → value, as a fraction.
Measured = Mapping[str, Mapping[str, Mapping[str, float]]]


class Column(NamedTuple):
    """A column in the papers' tables."""

    title: str
    task: str
    split: str
    metric: str


COLUMNS = (
    Column("MNLI-m", "mnli", "dev_matched", "accuracy"),
    Column("MNLI-mm", "mnli", "dev_mismatched", "accuracy"),
    Column("QQP", "qqp", "dev", "f1"),
    Column("QNLI", "qnli", "dev", "accuracy"),
    Column("SST-2", "sst2", "dev", "accuracy"),
    Column("CoLA", "cola", "dev", "matthews"),
    Column("STS-B", "stsb", "dev", "spearman"),
    Column("MRPC", "mrpc", "dev", "f1"),
    Column("RTE", "rte", "dev", "accuracy"),
)
WNLI_COLUMN = Column("WNLI", "wnli", "dev", "accuracy")


def measure(models: Mapping[str, str], data: str | os.PathLike[str]) -> dict[str, Any]:
    """Scores models on their tasks' development sets; MNLI has two.

    Args:
      models: task → model directory or bundle.
      data: the GLUE folder.
    Returns:
      The result from `summarize`, with `metrics` (task → split → metric → value), `models`, `seconds`, `baseline` (the
      same summary for constant predictions, with `answers`: task → split → prediction) and `warnings` per task and
      split.
    Raises:
      UserError: models or files that cannot be read.
    """
    sets = {
        task: {split: read_glue(task, data, split) for split in GLUE[task].dev_splits}
        for task in GLUE
        if task in models
    }
    check_models(models)
    start = time.perf_counter()
    scores: dict[str, dict[str, Scores]] = {}
    for task, splits in sets.items():
        model = GlueModel(task, models[task])
        scores[task] = {}
        for split, examples in splits.items():
            assert examples.labels is not None
            log_info(f"{task}: {len(examples)} examples of {examples.source}")
            glue, predictions = GLUE[task], model.predictions(examples)
            scores[task][split] = text_task(glue.task).score(
                examples.labels, predictions, glue.metrics, glue.main_metric
            )
    baselines = _each(scores, lambda task_scores: task_scores.baseline)
    measured = _each(scores, lambda task_scores: task_scores.metrics)
    constant = _each(baselines, lambda task_scores: task_scores["metrics"])
    answers = _each(baselines, lambda task_scores: task_scores["answer"])
    return {
        **summarize(measured),
        "metrics": measured,
        "baseline": {**summarize(constant), "metrics": constant, "answers": answers},
        "warnings": [
            f"{task}, {split}: {warning}"
            for task, splits in scores.items()
            for split, task_scores in splits.items()
            for warning in task_scores.warnings
        ],
        "models": dict(models),
        "seconds": round(time.perf_counter() - start, 3),
    }


def _each(by_task: Mapping[str, Mapping[str, Any]], part: Callable[[Any], Any]) -> dict[str, dict[str, Any]]:
    return {
        task: {split: part(task_scores) for split, task_scores in splits.items()} for task, splits in by_task.items()
    }


def summarize(measured: Measured) -> dict[str, Any]:
    """Computes the papers' columns and both averages; `measured` is task → split → metric → value.

    Returns:
      `columns` (title → value, for measured tasks), `papers_average` and `glue_average`; an average is None unless all
      its tasks were measured.
    """
    columns = {
        column.title: measured[column.task][column.split][column.metric]
        for column in (*COLUMNS, WNLI_COLUMN)
        if column.task in measured
    }
    averaged = {column.task for column in COLUMNS}
    complete = averaged <= set(measured)
    scores = [
        statistics.fmean(value for values in measured[task].values() for value in values.values())
        for task in averaged & set(measured)
    ]
    return {
        "columns": columns,
        "papers_average": statistics.fmean(columns[column.title] for column in COLUMNS) if complete else None,
        "glue_average": statistics.fmean(scores) if complete else None,
    }


def table(summary: Mapping[str, Any]) -> list[str]:
    """Lines in percent, as in the papers: titles, the models' values, and the baseline's values."""
    titles = [*summary["columns"], "average (papers)", "average (GLUE)"]
    rows = [["", *titles]]
    for name, metrics in (("model", summary), ("baseline", summary["baseline"])):
        values = [*metrics["columns"].values(), metrics["papers_average"], metrics["glue_average"]]
        rows.append([name, *("-" if value is None else f"{100 * value:.1f}" for value in values)])
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        "  ".join([f"{name:<{first}}", *(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))])
        for name, *row in rows
    ]
