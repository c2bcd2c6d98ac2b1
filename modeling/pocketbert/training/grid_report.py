"""A search over a grid as a table on a terminal, and as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pocketbert.training.grid import STATISTICS

Summary = Mapping[str, Any]

STYLE = """\
body { margin: 0 auto; max-width: 1080px; padding: 32px 20px; color: #111827; background: #f8fafc;
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 8px; }
p { color: #4b5563; max-width: 76ch; margin: 0 0 12px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 14px;
  margin: 20px 0; }
figure, .scroll { margin: 0; background: #fff; border: 1px solid #e5e7eb; border-radius: 10px; }
figure { padding: 12px; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; height: auto; font-size: 11px; fill: #4b5563; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 12px; text-align: right; border-bottom: 1px solid #e5e7eb; white-space: nowrap; }
th { color: #4b5563; font-size: 0.82rem; }
.best td { font-weight: 600; background: #f0fdfa; color: #0f766e; }
.failed { color: #b91c1c; text-align: left; white-space: normal; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ main }} over a grid</title>
<style>
{{ style }}</style>
</head>
<body>
<h1>{{ main }} over a grid</h1>
<p>{{ sentence }}{% if fixed %} The same for all: {{ fixed }}.{% endif %}</p>
{% for warning in warnings %}<p class="failed">{{ warning }}</p>
{% endfor %}
<div class="charts">
{% for chart in charts %}
<figure><figcaption>{{ chart.option }}</figcaption>
<svg viewBox="0 0 360 220" role="img" aria-label="{{ main }} by {{ chart.option }}">
{% for tick in chart.ticks %}
<line x1="56" x2="348" y1="{{ tick.y }}" y2="{{ tick.y }}" stroke="#e5e7eb"/>
<text x="50" y="{{ tick.y + 4 }}" text-anchor="end">{{ tick.text }}</text>
{% endfor %}
{% for place in chart.places %}<text x="{{ place.x }}" y="212" text-anchor="middle">{{ place.text }}</text>
{% endfor %}
{% for dot in chart.dots %}<circle cx="{{ dot.x }}" cy="{{ dot.y }}" r="3" fill="#94a3b8" fill-opacity="0.6"/>
{% endfor %}
<polyline points="{{ chart.line }}" fill="none" stroke="#0f766e" stroke-width="2"/>
</svg></figure>
{% endfor %}
</div>
{% if charts %}<p>Dots are runs; the line joins, for each value, the best point that has it.</p>{% endif %}
<div class="scroll"><table>
<thead><tr>{% for name in head %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr{% if row.best %} class="best"{% endif %}>{% for cell in row.options %}<td>{{ cell }}</td>{% endfor %}
{% if row.failed %}<td class="failed" colspan="{{ head | length - row.options | length }}">{{ row.failed }}</td>
{% else %}{% for cell in row.numbers %}<td>{{ cell }}</td>{% endfor %}{% endif %}</tr>
{% endfor %}
</tbody>
</table></div>
</body>
</html>
"""


def table(summary: Summary) -> list[str]:
    """The lines of a table with a row a point, in the grid's order; the best has a star. The last is the baseline.

    Args:
      summary: as `pocketbert.training.grid_run.summarize` gives it.
    """
    lines = [["", *_head(summary)]]
    for row in _rows(summary):
        lines.append(
            ["*" if row["best"] else "", *row["options"], *([row["failed"]] if row["failed"] else row["numbers"])]
        )
    # What failed says why, at a length of its own.
    widths = [
        max((len(line[i]) for line in lines if len(line) == len(lines[0])), default=0) for i in range(len(lines[0]))
    ]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]


def page(summary: Summary) -> str:
    """The search as one HTML page that needs no other file.

    It has the table, and for each option that varies a picture of the main metric over its values.

    Args:
      summary: as `pocketbert.training.grid_run.summarize` gives it.
    """
    import jinja2

    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_PAGE)
    return template.render(
        style=STYLE,
        main=summary["main_metric"],
        sentence=sentence(summary),
        warnings=summary["warnings"],
        fixed=", ".join(f"{name}={_text(values[0])}" for name, values in summary["grid"].items() if len(values) == 1),
        head=_head(summary),
        rows=list(_rows(summary)),
        charts=[_chart(summary, name) for name in _varied(summary)],
    )


def sentence(summary: Summary) -> str:
    """What was chosen, how, and from how much, and what the baseline has."""
    best, seeds, main = summary["best"], len(summary["seeds"]), summary["main_metric"]
    baseline = summary["baseline"]
    options = ", ".join(f"{name}={_text(value)}" for name, value in best["options"].items())
    over = f", the {summary['choose']} of {seeds} seeds," if seeds > 1 else ""
    return (
        f"Best of {len(summary['points'])} points: {options}, with {main} {best['value']:.4f}{over}"
        f" on the development examples. Its best run is {best['run']}."
    ) + (f" The baseline, {baseline['answer']}, has {baseline['metrics'][main]:.4f}." if baseline else "")


def _varied(summary: Summary) -> list[str]:
    return [name for name, values in summary["grid"].items() if len(values) > 1]


def _metrics(summary: Summary) -> list[str]:
    """All metrics, the main one first."""
    found = next(point["metrics"] for point in summary["points"] if point["metrics"])
    return [summary["main_metric"], *(name for name in found if name != summary["main_metric"])]


def _head(summary: Summary) -> list[str]:
    several = len(summary["seeds"]) > 1
    names = [f"{summary['choose']} {name}" if several else name for name in _metrics(summary)]
    return [*_varied(summary), names[0], *(("± sample", "lowest", "highest") if several else ()), *names[1:]]


def _rows(summary: Summary) -> Iterator[dict[str, Any]]:
    several, statistic = len(summary["seeds"]) > 1, STATISTICS[summary["choose"]]
    main, *others = _metrics(summary)
    for point in summary["points"]:
        found = point["metrics"]
        numbers: list[float] = []
        if found:
            spread = [found[main][name] for name in ("standard_deviation", "minimum", "maximum")] if several else []
            numbers = [point["value"], *spread, *(found[name][statistic] for name in others)]
        yield {
            "best": point["options"] == summary["best"]["options"],
            "options": [_text(point["options"][name]) for name in _varied(summary)],
            "numbers": [f"{number:.4f}" for number in numbers],
            "failed": "; ".join(f"seed {seed} failed: {why}" for seed, why in point["failures"].items()),
        }
    if summary["baseline"] and (varied := _varied(summary)):
        first, *rest = (f"{summary['baseline']['metrics'][name]:.4f}" for name in (main, *others))
        yield {
            "best": False,
            "options": ["baseline", *[""] * (len(varied) - 1)],
            "numbers": [first, *([""] * 3 if several else []), *rest],
            "failed": "",
        }


def _chart(summary: Summary, option: str) -> dict[str, Any]:
    """Where the marks of an option's picture are: in SVG's pixels, in a field of 292 by 176."""
    main, values = summary["main_metric"], summary["grid"][option]
    if all(isinstance(value, int | float) for value in values):
        values = sorted(values)
    # At equal distances, since the values are words, or rates whose ratios matter.
    places = {value: 56 + 292 * (index + 0.5) / len(values) for index, value in enumerate(values)}
    runs = [(point["options"][option], run["metrics"][main]) for point in summary["points"] for run in point["runs"]]
    best = {
        value: max(found)
        for value in values
        if (
            found := [p["value"] for p in summary["points"] if p["options"][option] == value and p["value"] is not None]
        )
    }
    low, high = axis_range([number for _, number in runs])

    def height(number: float) -> float:
        return round(192 - 176 * (number - low) / (high - low), 1)

    return {
        "option": option,
        # 1e-5, not 1e-05: ten of them stand side by side.
        "places": [{"x": round(x, 1), "text": _text(value).replace("e-0", "e-")} for value, x in places.items()],
        "dots": [{"x": round(places[value], 1), "y": height(number)} for value, number in runs],
        "line": " ".join(f"{places[value]:.1f},{height(number)}" for value, number in best.items()),
        "ticks": [{"y": height(number), "text": f"{number:.3f}"} for number in (low, (low + high) / 2, high)],
    }


def axis_range(numbers: Sequence[float]) -> tuple[float, float]:
    """Of an axis that shows the numbers, and more than a point of it if they are all the same."""
    margin = max(0.05 * (max(numbers) - min(numbers)), 5e-4)
    return min(numbers) - margin, max(numbers) + margin


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
