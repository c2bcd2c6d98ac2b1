"""A self-contained HTML page with the scores of one or more models on the same examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.report import render
from pocketbert.tasks.scores import Scores


def page(models: Mapping[str, Scores], examples: int, source: str) -> str:
    """Renders the scores as a self-contained HTML page.

    The page has a table of metrics with the baseline; for classification also scores per class and the confusion
    matrix; for multi_label also scores per label.

    Args:
      models: name → scores, all on the same examples.
      examples: number of examples.
      source: origin of the examples.
    """
    first = next(iter(models.values()))
    return render(
        "scores.html",
        title="Scores",
        source=source,
        examples=examples,
        positive=first.positive_label,
        baseline=first.baseline,
        head=["Metric", *models, *([f"Baseline: {first.baseline['answer']}"] if first.baseline else [])],
        rows=_rows(models),
        by_class={name: _by_class(scores.classes) for name, scores in models.items() if scores.classes},
        warnings=[warning for scores in models.values() for warning in scores.warnings],
    )


def _rows(models: Mapping[str, Scores]) -> list[list[str]]:
    """Returns one row per metric: the name, and the values of each model and the baseline."""
    first = next(iter(models.values()))
    columns: list[Mapping[str, Any]] = [scores.metrics for scores in models.values()]
    if first.baseline:
        columns.append(first.baseline["metrics"])
    rows = [[name, *(f"{column[name]:.4f}" for column in columns)] for name in first.metrics]
    if first.classes and "macro_f1" in first.classes:
        macro = [f"{scores.classes['macro_f1']:.4f}" for scores in models.values() if scores.classes]
        rows.append(["macro-F1", *macro, *(["–"] if first.baseline else [])])
    return rows


def _by_class(classes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the cells of the tables of a model: the scores per label, and the confusion matrix if there is one."""
    labels = classes["by_label"]
    counts = classes.get("confusion_matrix", [])
    return {
        "rows": [
            [label, *(f"{found[metric]:.4f}" for metric in ("precision", "recall", "f1")), found["support"]]
            for label, found in labels.items()
        ],
        "confusion_head": ["", *labels],
        "confusion": [[label, *row] for label, row in zip(labels, counts, strict=False)],
    }
