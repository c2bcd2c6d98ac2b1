"""Grid search reports: a table for the terminal and a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pocketbert.report import render
from pocketbert.report.scatter import Scatter, axis_range
from pocketbert.training.grids.points import STATISTICS, value_text

Summary = Mapping[str, Any]


def table(summary: Summary) -> list[str]:
    """Returns table lines with one row per point in grid order, a star on the best, and the baseline last.

    Args:
      summary: from `pocketbert.training.grids.run.summarize`.
    """
    lines = [["", *_head(summary)]]
    for row in _rows(summary):
        lines.append(
            ["*" if row["best"] else "", *row["options"], *([row["failed"]] if row["failed"] else row["numbers"])]
        )
    # Rows with an error message do not affect column widths.
    columns = zip(*(line for line in lines if len(line) == len(lines[0])), strict=True)
    widths = [max(map(len, column)) for column in columns]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]


def page(summary: Summary) -> str:
    """Renders the search as a self-contained HTML page: the table, and a main metric chart for each varied option.

    Args:
      summary: from `pocketbert.training.grids.run.summarize`.
    """
    return render(
        "grid.html",
        title=f"Grid search: {summary['main_metric']}",
        main=summary["main_metric"],
        sentence=sentence(summary),
        warnings=summary["warnings"],
        fixed=", ".join(
            f"{name}={value_text(values[0])}" for name, values in summary["grid"].items() if len(values) == 1
        ),
        head=_head(summary),
        options=len(_varied(summary)),
        rows=list(_rows(summary)),
        charts=[_chart(summary, name) for name in _varied(summary)],
    )


def sentence(summary: Summary) -> str:
    """Describes the selected point, its statistic, and the baseline."""
    best, seeds, main = summary["best"], len(summary["seeds"]), summary["main_metric"]
    baseline = summary["baseline"]
    options = ", ".join(f"{name}={value_text(value)}" for name, value in best["options"].items())
    over = f", the {summary['choose']} of {seeds} seeds," if seeds > 1 else ""
    return (
        f"Best of {len(summary['points'])} points: {options}, with {main} {best['value']:.4f}{over}"
        f" on the development examples. Its best run is {best['run']}."
    ) + (f" The baseline, {baseline['answer']}, has {baseline['metrics'][main]:.4f}." if baseline else "")


def _varied(summary: Summary) -> list[str]:
    return [name for name, values in summary["grid"].items() if len(values) > 1]


def _metrics(summary: Summary) -> list[str]:
    """Returns all metrics, the main metric first."""
    metrics = next(point["metrics"] for point in summary["points"] if point["metrics"])
    return [summary["main_metric"], *(name for name in metrics if name != summary["main_metric"])]


def _head(summary: Summary) -> list[str]:
    several = len(summary["seeds"]) > 1
    names = [f"{summary['choose']} {name}" if several else name for name in _metrics(summary)]
    return [*_varied(summary), names[0], *(("± sample", "lowest", "highest") if several else ()), *names[1:]]


def _rows(summary: Summary) -> Iterator[dict[str, Any]]:
    several, statistic = len(summary["seeds"]) > 1, STATISTICS[summary["choose"]]
    main, *others = _metrics(summary)
    for point in summary["points"]:
        metrics = point["metrics"]
        numbers: list[float] = []
        if metrics:
            spread = [metrics[main][name] for name in ("standard_deviation", "minimum", "maximum")] if several else []
            numbers = [point["value"], *spread, *(metrics[name][statistic] for name in others)]
        yield {
            "best": point["options"] == summary["best"]["options"],
            "options": [value_text(point["options"][name]) for name in _varied(summary)],
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
    """Returns one option's chart: coordinates in a `Scatter`."""
    main, values = summary["main_metric"], summary["grid"][option]
    if all(isinstance(value, int | float) for value in values):
        values = sorted(values)
    runs = [(point["options"][option], run["metrics"][main]) for point in summary["points"] for run in point["runs"]]
    best = {
        value: max(scores)
        for value in values
        if (
            scores := [
                p["value"] for p in summary["points"] if p["options"][option] == value and p["value"] is not None
            ]
        )
    }
    low, high = axis_range([number for _, number in runs])
    plot = Scatter([0, len(values)], [low, high])
    # Equal distances: values are words, or rates with meaningful ratios.
    places = {value: plot.x(index + 0.5) for index, value in enumerate(values)}
    return {
        "option": option,
        # 1e-5, not 1e-05: an axis can have ten labels.
        "places": [
            {"x": x, "text": value_text(value).replace("e-0", "e-"), "anchor": "middle"} for value, x in places.items()
        ],
        "dots": [{"x": places[value], "y": plot.y(number)} for value, number in runs],
        "line": " ".join(f"{places[value]},{plot.y(number)}" for value, number in best.items()),
        "ticks": [{"y": plot.y(number), "text": f"{number:.3f}"} for number in (low, (low + high) / 2, high)],
    }
