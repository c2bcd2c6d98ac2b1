"""Renders an HTML page with the outcome for a model, or for a model and its bundle, on the same examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.files import write_text
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.report import render
from pocketbert.report.outcome import data_name, metric_name, points, view
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake
from pocketbert.tasks.scores import Scores

# Columns that fit on a phone.
_MOST_COLUMNS = 12
_MOST_CONFUSIONS = 20
# Start of the note that replaces the texts.
_HIDDEN = '<p class="note">This page shows no texts, because of '
# Texts on the page are escaped, so they cannot end this part.
_TEXTS = re.compile("<!-- texts -->.*<!-- end of texts -->", re.DOTALL)


def page(
    models: Mapping[str, Scores],
    examples: int,
    source: str,
    *,
    data: str = "",
    mistakes: Sequence[Mistake] | None = (),
    tiles: Sequence[tuple[str, str, str]] = (),
) -> str:
    """Renders the scores as a self-contained HTML page, the last model's outcome first.

    Args:
      models: name → scores, all on the same examples: a model, or a model and its bundle.
      examples: number of examples.
      source: where the examples come from.
      data: where the training examples come from, for the title; empty for `source`.
      mistakes: the last model's wrong answers; None if they are private.
      tiles: further figures: (figure, name, detail).
    """
    name, scores = [*models.items()][-1]
    several = len(models) > 1
    columns = [*(model[:1].upper() + model[1:] for model in models), *(["Points"] if several else [])]
    by_label = scores.classes["by_label"] if scores.classes else {}
    decisions = scores.decisions or {}
    by_head = decisions.get("heads", {"": decisions})
    counts = scores.classes.get("confusion_matrix", []) if scores.classes else []
    return render(
        "scores.html",
        title=data_name(data or source),
        source=Path(source).name or source,
        examples=examples,
        seen=view(name[:1].upper() + name[1:], scores.outcome()),
        tiles=tiles,
        whose=f"Of the {name}. " if several else "",
        positive=scores.positive_label,
        baseline=scores.baseline,
        head=["Metric", *columns, *(["Baseline"] if scores.baseline else [])],
        rows=_rows(models, scores),
        changes=several,
        classes=_by_class(by_label, models),
        # Head name → rows; an empty name for one head.
        thresholds={
            head: [[label, f"{value:.4f}"] for label, value in of_head["thresholds"].items()]
            for head, of_head in by_head.items()
            if "thresholds" in of_head
        },
        coverage={
            head: [
                [f"{row['reject_below']:.4f}", *(f"{100 * row[key]:.1f} %" for key in ("coverage", "accuracy", "kept"))]
                for row in of_head["coverage"]
            ]
            for head, of_head in by_head.items()
            if "coverage" in of_head
        },
        # Label → count and colour strength, 0 to 0.4, for each prediction.
        matrix=[
            (label, [(count, 0.4 * count / max(1, sum(row))) for count in row])
            for label, row in zip(by_label, counts, strict=bool(counts))
        ]
        if len(counts) <= _MOST_COLUMNS
        else [],
        confusions=_confusions(list(by_label), counts) if len(counts) > _MOST_COLUMNS else [],
        mistakes=mistakes,
        hidden=_hidden(),
        hide=argument("show_texts", False),
        most=MOST_MISTAKES,
    )


def show_or_hide_texts(path: Path, *, show: bool) -> None:
    """Removes texts from an earlier run's page, or logs that it has none."""
    if not path.is_file():
        return
    content = path.read_text(encoding="utf-8")
    if show and _HIDDEN in content:
        log_info(
            f"{path} has no texts, since this run was made with {argument('show_texts', False)}; pass "
            f"{argument('overwrite', True)} to train again"
        )
    elif not show and _TEXTS.search(content):
        write_text(path, _TEXTS.sub(lambda _: _hidden(), content))


def _hidden() -> str:
    return f"{_HIDDEN}{argument('show_texts', False)}.</p>"


def _rows(models: Mapping[str, Scores], scores: Scores) -> list[list[str]]:
    """One row per metric: each model's value, the last two's difference in points, and the baseline."""
    columns = [dict(model.metrics) for model in models.values()]
    names = list(scores.metrics)
    if scores.classes and "macro_f1" in scores.classes and "macro_f1" not in names:
        names.append("macro_f1")
        for column, model in zip(columns, models.values(), strict=True):
            column["macro_f1"] = model.classes["macro_f1"] if model.classes else 0.0
    rows = []
    for name in names:
        values = [column[name] for column in columns]
        row = [metric_name(name), *(f"{value:.4f}" for value in values)]
        row += [points(values[-1] - values[-2])] if len(values) > 1 else []
        if scores.baseline:
            constant = scores.baseline["metrics"].get(name)
            row.append("–" if constant is None else f"{constant:.4f}")
        rows.append(row)
    return rows


def _by_class(by_label: Mapping[str, Any], models: Mapping[str, Scores]) -> list[list[str]]:
    """Cells for the class table; with several models also the change in F1."""
    first = next(iter(models.values())).classes or {"by_label": {}}
    rows = []
    for label, values in by_label.items():
        row = [label, *(f"{values[metric]:.3f}" for metric in ("precision", "recall", "f1"))]
        if len(models) > 1:
            before = first["by_label"].get(label, {"f1": 0.0})
            row.append(points(values["f1"] - before["f1"]))
        rows.append([*row, str(values["support"])])
    return rows


def _confusions(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> list[list[str]]:
    """The most frequent pairs of label and wrong prediction, with their number."""
    confusions = [
        (count, label, labels[column])
        for row, (label, cells) in enumerate(zip(labels, counts, strict=True))
        for column, count in enumerate(cells)
        if count and row != column
    ]
    confusions.sort(key=lambda confusion: -confusion[0])
    return [[label, prediction, str(count)] for count, label, prediction in confusions[:_MOST_CONFUSIONS]]
