"""Reports on a comparison with fine-tuning: a table for the terminal and a self-contained page with curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pocketbert.notation import argument
from pocketbert.report import render
from pocketbert.report.scatter import axis_range
from pocketbert.training.stage_log import LINE_NAMES

Comparison = Mapping[str, Any]
# One seed's logs: `distilled` and `fine_tuned` → lines in metrics.jsonl.
Logs = Mapping[str, Sequence[Mapping[str, Any]]]
# A run's (step, value) pairs in order.
_Line = list[tuple[int, float]]

# More dots would hide the line.
_MOST_DOTS = 40
_COLOURS = {"teacher": "#6b7280", "distilled": "#0f766e", "fine_tuned": "#c2410c"}
_LABELS = {"teacher": "teacher", "distilled": "distilled", "fine_tuned": "fine-tuned alone"}


def table(comparison: Comparison) -> list[str]:
    """Returns table lines with teacher, both students, baseline, and the difference between the students.

    Args:
      comparison: from `pocketbert.distillation.comparison.compared`.
    """
    rows = _rows(comparison)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    first, *others = widths
    return [
        "  ".join(
            [row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))]
        ).rstrip()
        for row in rows
    ]


def sentence(comparison: Comparison) -> str:
    """Describes the result and its spread over seeds."""
    main, seeds = comparison["main_metric"], comparison["seeds"]
    _, distilled, fine_tuned, *_ = comparison["rows"]
    difference = comparison["difference"][main]
    text = (
        f"{main} on {comparison['dev_examples']} development examples, after {distilled['steps']} steps each: "
        f"{_number(distilled['metrics'][main])} distilled, {_number(fine_tuned['metrics'][main])} fine-tuned alone; "
        f"the difference is {_number(difference, '+')}"
    )
    if baseline := comparison["baseline"]:
        text += f"; the baseline, {baseline['answer']}, has {baseline['metrics'][main]:.4f}"
    if len(seeds) == 1:
        return f"{text}. This is one seed; give several {argument('seeds')} to estimate the noise."
    return f"{text}. Values are means over {len(seeds)} seeds (± sample standard deviation)."


def page(comparison: Comparison, logs: Sequence[Logs]) -> str:
    """Renders the comparison as a self-contained HTML page.

    The page has the table, and curves over the steps: each metric for both students, and each loss term per stage.
    """
    return render(
        "comparison.html",
        title="Distillation and fine-tuning",
        sentence=sentence(comparison),
        warnings=comparison["warnings"],
        rows=_rows(comparison),
        charts=list(_charts(comparison, logs)),
        teacher_colour=_COLOURS["teacher"],
        several=len(logs) > 1,
        others=len(comparison["rows"]) > len(_LABELS),
    )


def _metrics(comparison: Comparison) -> list[str]:
    """Returns all metrics, the main metric first."""
    return sorted(comparison["difference"], key=lambda name: name != comparison["main_metric"])


def _rows(comparison: Comparison) -> list[list[str]]:
    """Returns the cells of the table, the header first."""
    metrics = _metrics(comparison)
    caches = [row["teacher_cache_bytes"] for row in comparison["rows"]]
    rows = [["", *metrics, "steps", "seconds", *(["teacher cache"] if any(caches) else [])]]
    for row, cache in zip(comparison["rows"], caches, strict=True):
        summaries = row["metrics"]
        numbers = [_number(summaries[name]) if summaries and name in summaries else "not scored" for name in metrics]
        spent = ["", ""] if row["steps"] is None else [str(row["steps"]), f"{row['seconds']:.1f}"]
        size = f"{cache:,} bytes" if cache else ""
        rows.append([_LABELS.get(row["name"], row["name"]), *numbers, *spent, *([size] if any(caches) else [])])
    rest = [""] * (len(rows[0]) - 1 - len(metrics))
    if baseline := comparison["baseline"]:
        rows.append(["baseline", *(f"{baseline['metrics'][name]:.4f}" for name in metrics), *rest])
    rows.append(["difference", *(_number(comparison["difference"][name], "+") for name in metrics), *rest])
    return rows


def _number(summary: Mapping[str, float | None], sign: str = "") -> str:
    deviation = summary["standard_deviation"]
    return f"{summary['mean']:{sign}.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _charts(comparison: Comparison, logs: Sequence[Logs]) -> Iterator[dict[str, Any]]:
    teacher = comparison["rows"][0]["metrics"] or {}
    for metric in _metrics(comparison):
        lines = [(name, _curve(log, "dev", metric)) for seed in logs for name, log in seed.items()]
        yield _chart(f"dev {metric}", lines, teacher[metric]["mean"] if metric in teacher else None)
    others = {*LINE_NAMES, "loss", "learning_rate"}
    for name in logs[0]:
        steps = [line for line in logs[0][name] if line["split"] == "train"]
        for stage, term in dict.fromkeys((line["stage"], key) for line in steps for key in line if key not in others):
            lines = [(name, _curve(seed[name], "train", term, stage)) for seed in logs]
            yield _chart(f"{stage}: {term}", lines)


def _curve(log: Sequence[Mapping[str, Any]], split: str, name: str, stage: str | None = None) -> _Line:
    return [(line["step"], line[name]) for line in log if line["split"] == split and stage in (None, line["stage"])]


def _chart(title: str, lines: Sequence[tuple[str, _Line]], level: float | None = None) -> dict[str, Any]:
    """Returns a chart: coordinates in SVG pixels, with a plot area of 292 x 176; `level` is the teacher's metric."""
    steps = [step for _, line in lines for step, _ in line]
    values = [value for _, line in lines for _, value in line]
    low, high = axis_range([*values, *([] if level is None else [level])])
    first, last = min(steps), max(steps)

    def height(value: float) -> float:
        return round(192 - 176 * (value - low) / (high - low), 1)

    def place(step: int) -> float:
        return round(56 + 292 * (step - first) / max(last - first, 1), 1)

    drawn = []
    for name, line in lines:
        dots = [{"x": place(step), "y": height(value)} for step, value in line]
        shown = dots if len(dots) <= _MOST_DOTS else []
        drawn.append(
            {"colour": _COLOURS[name], "dots": shown, "points": " ".join(f"{dot['x']},{dot['y']}" for dot in dots)}
        )
    places = [{"x": place(first), "text": first, "anchor": "start"}, {"x": place(last), "text": last, "anchor": "end"}]
    return {
        "title": title,
        "names": [
            (_LABELS[name], _COLOURS[name])
            for name in dict.fromkeys([*(name for name, _ in lines), *([] if level is None else ["teacher"])])
        ],
        "lines": drawn,
        "level": None if level is None else height(level),
        "places": places[: 1 if first == last else 2],
        "ticks": [{"y": height(value), "text": f"{value:.3g}"} for value in (low, (low + high) / 2, high)],
    }
