"""The scores of one or more models on the same examples, as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.report import render
from pocketbert.tasks.metrics import Scores


def page(models: Mapping[str, Scores], examples: int, source: str) -> str:
    """The scores as one HTML page that needs no other file.

    It has a table of the metrics beside the baseline's, for classification each class and the confusion matrix,
    and for multi_label each label.

    Args:
      models: name → scores, all on the same examples.
      examples: how many.
      source: where they come from.
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
    """A row for each metric: its name, each model's and the baseline's."""
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
    """The cells of a model's tables: each label's scores, and the confusion matrix where there is one."""
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
