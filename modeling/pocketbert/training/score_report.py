"""The scores of one or more models on the same examples, as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.tasks.scores import Scores
from pocketbert.training.grid_report import STYLE

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Scores on {{ source }}</title>
<style>
{{ style }}h2 { font-size: 1.1rem; margin: 24px 0 8px; }
th:first-child, td:first-child { text-align: left; }
</style>
</head>
<body>
<h1>Scores</h1>
<p>{{ examples }} development examples: {{ source }}.{% if positive %} F1 is that of {{ positive }}.{% endif %}
{% if not baseline %}No constant answer is right, so there is no baseline.{% endif %}</p>
{% for warning in warnings %}<p class="failed">{{ warning }}</p>
{% endfor %}
<div class="scroll"><table>
<thead><tr><th>Metric</th>{% for name in models %}<th>{{ name }}</th>{% endfor %}
{% if baseline %}<th>Baseline: {{ baseline.answer }}</th>{% endif %}</tr></thead>
<tbody>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
{% for name, classes in by_class.items() %}
<h2>Classes, {{ name }}</h2>
<div class="scroll"><table>
<thead><tr><th>Label</th><th>Precision</th><th>Recall</th><th>F1</th><th>Support</th></tr></thead>
<tbody>
{% for label, found in classes.by_label.items() %}
<tr><td>{{ label }}</td>{% for metric in ("precision", "recall", "f1") %}<td>{{ "%.4f" | format(found[metric]) }}</td>
{% endfor %}<td>{{ found.support }}</td></tr>
{% endfor %}
</tbody>
</table></div>
{% if "confusion_matrix" in classes %}
<h2>Confusion matrix, {{ name }}</h2>
<p>A row for each label, a column for each answer.</p>
<div class="scroll"><table>
<thead><tr><th></th>{% for label in classes.by_label %}<th>{{ label }}</th>{% endfor %}</tr></thead>
<tbody>
{% for label in classes.by_label %}
<tr><td>{{ label }}</td>{% for count in classes.confusion_matrix[loop.index0] %}<td>{{ count }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
{% endif %}
{% endfor %}
</body>
</html>
"""


def page(models: Mapping[str, Scores], examples: int, source: str) -> str:
    """The scores as one HTML page that needs no other file.

    It has a table of the metrics beside the baseline's, for classification each class and the confusion matrix,
    and for multi_label each label.

    Args:
      models: name → scores, all on the same examples.
      examples: how many.
      source: where they come from.
    """
    import jinja2

    first = next(iter(models.values()))
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_PAGE)
    return template.render(
        style=STYLE,
        source=source,
        examples=examples,
        positive=first.positive_label,
        baseline=first.baseline,
        models=list(models),
        rows=_rows(models),
        by_class={name: scores.classes for name, scores in models.items() if scores.classes},
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
