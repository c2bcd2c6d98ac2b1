"""Draw the plots, as PNG files and as SVG elements for the page."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pocketbert_bench import comparison
from pocketbert_bench.comparison import Row
from pocketbert_bench.label_placement import place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# One colour per export; baselines are grey to set ours apart.
OURS = ("#0f766e", "#b45309", "#7c3aed", "#be185d", "#2563eb")
BASELINES = ("#94a3b8", "#64748b", "#cbd5e1", "#475569")
_INK, _SOFT, _FAINT = "#1f2937", "#6b7280", "#e5e7eb"
_PNG_DPI = 170
# In inches. Small figures: the text must be readable at a phone's width.
_SIZE = (5.0, 3.5)
# In inches, for a plot with few bars.
_MIN_HEIGHT = 2.0
# In 1/72 inch.
_LABEL_POINTS, _MARKER_POINTS = 8.5, 7.0
# Characters per line in a name: beside an axis or in two columns, beside small boxes, in one column.
_NAME_CHARACTERS, _BOX_CHARACTERS, _LEGEND_CHARACTERS = 28, 40, 52
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pocketbert",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": "#9ca3af",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}


def draw(rows: Sequence[Row]) -> dict[str, tuple[bytes, str]]:
    """Draws all plots with data: name → (PNG, SVG element), in display order."""
    return {name: _image(figure) for name, figure in figures(rows).items()}


def colours(rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """(network, export) → colour."""
    chosen, our_colours, baselines = {}, iter(OURS * 9), iter(BASELINES * 9)
    for row in rows:
        if (row.model, row.label) not in chosen:
            chosen[row.model, row.label] = next(baselines if row.is_baseline else our_colours)
    return chosen


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Draws all plots with data: name → figure, in display order."""
    # The object-oriented interface has no global state and needs no display.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plots: dict[str, Callable[[Any, Sequence[Row]], bool]] = {
        "accuracy_latency": _accuracy_against_latency,
        "size": _size,
        "latency": _latency_by_length,
        "distribution": _distribution,
    }
    drawn = {}
    with matplotlib.rc_context(_SETTINGS):
        for name, plot in plots.items():
            figure = Figure(figsize=_SIZE, layout="constrained")
            FigureCanvasAgg(figure)
            if plot(figure.add_subplot(), rows):
                drawn[name] = figure
    return drawn


def _image(figure: Figure) -> tuple[bytes, str]:
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        png, svg = io.BytesIO(), io.StringIO()
        figure.savefig(png, format="png", dpi=_PNG_DPI, facecolor="white")
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return png.getvalue(), _element(svg.getvalue())


def _element(document: str) -> str:
    """Turns an SVG document into an element of a page: no prologue, no fixed size, the page's font."""
    element = document[document.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", element, count=1)
    element = element.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    element = element.replace(' xmlns="http://www.w3.org/2000/svg"', "")
    return re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", element)


def _accuracy_against_latency(axes: Any, rows: Sequence[Row]) -> bool:
    scored = [row for row in rows if row.accuracy and row.latencies]
    if not scored:
        return False
    thread_count, colour = comparison.threads(scored)[0], colours(rows)
    labels: list[_Label] = []
    for row in scored:
        assert row.accuracy
        points = sorted((length, row.latency_us(length, n)) for length, n in row.latencies if n == thread_count)
        xs, score = [latency / 1e3 for _, latency in points if latency], 100 * row.accuracy.value
        row_colour = colour[row.model, row.label]
        axes.plot(xs, [score] * len(xs), "-", color=row_colour, linewidth=1.5, alpha=0.5)
        axes.plot(
            xs, [score] * len(xs), "o", color=row_colour, label=comparison.name(row, rows), markersize=_MARKER_POINTS
        )
        labels += [_Label(x, score, str(length), row_colour) for x, (length, _) in zip(xs, points, strict=True)]
    scores = [100 * row.accuracy.value for row in scored if row.accuracy]
    margin = max(2.0, max(scores) - min(scores))
    axes.set_ylim(min(scores) - margin, max(scores) + margin)
    axes.set_xlim(left=0)
    axes.grid(color=_FAINT)
    axes.set_xlabel(f"median latency, ms ({_threads(thread_count)})")
    metric = scored[0].accuracy.metric if scored[0].accuracy else ""
    axes.set_ylabel(f"{metric}, %")
    _legend(axes)
    _write_labels(axes, labels)
    return True


class _Label(NamedTuple):
    """Text beside the point (x, y)."""

    x: float
    y: float
    text: str
    colour: str


def _write_labels(axes: Any, labels: Sequence[_Label]) -> None:
    """Writes labels beside the points in a plot with fixed limits; none covers a label, a point or a line."""
    figure = axes.figure
    # The layout determines the scale from data to 1/72 inch.
    figure.draw_without_rendering()
    paper = 72 / figure.dpi
    points = [tuple(paper * axes.transData.transform((label.x, label.y))) for label in labels]
    sizes = [(0.65 * _LABEL_POINTS * (len(label.text) + 1), 1.2 * _LABEL_POINTS) for label in labels]
    lines = [paper * line.get_window_extent().extents for line in axes.lines if line.get_linestyle() == "-"]
    offsets = place(
        points,
        sizes,
        radius=_MARKER_POINTS / 2,
        obstacles=[(left, bottom - 1, right, top + 1) for left, bottom, right, top in lines],
        within=tuple(paper * axes.bbox.extents),
    )
    for label, (right, up) in zip(labels, offsets, strict=True):
        far = math.hypot(right, up) > 2.5 * _LABEL_POINTS
        axes.annotate(
            label.text,
            (label.x, label.y),
            (right, up),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_LABEL_POINTS,
            color=label.colour,
            arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.6, "alpha": 0.6} if far else None,
        ).set_in_layout(False)


def _latency_by_length(axes: Any, rows: Sequence[Row]) -> bool:
    measured = [row for row in rows if row.latencies]
    if not measured:
        return False
    lengths, thread_count, colour = comparison.lengths(measured), comparison.threads(measured)[0], colours(rows)
    # A line for each bar, so that values never meet, and one between the lengths.
    group = len(measured) + 1
    for index, row in enumerate(measured):
        own_colour = colour[row.model, row.label]
        for position, length in enumerate(lengths):
            latency_us = row.latency_us(length, thread_count)
            latency = latency_us or row.effective_latency_us(length, thread_count)
            if latency is None:
                continue
            y = position * group + index
            axes.barh(y, latency / 1e3, 0.8, color=own_colour, alpha=1 if latency_us else 0.25)
            _value(axes, latency / 1e3, y, short(latency / 1e3), _INK if latency_us else _SOFT)
        axes.barh(0, 0, color=own_colour, label=comparison.name(row, rows))
    axes.figure.set_size_inches(_SIZE[0], max(_MIN_HEIGHT, 1.2 + 0.19 * group * len(lengths)))
    axes.set_yticks(
        [position * group + (len(measured) - 1) / 2 for position in range(len(lengths))],
        [f"{length}\ntokens" for length in lengths],
    )
    axes.invert_yaxis()
    axes.set_xlabel(f"median latency, ms ({_threads(thread_count)})")
    axes.grid(axis="x", color=_FAINT)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.14, y=0.02)
    _legend(axes)
    return True


def _value(axes: Any, x: float, y: float, text: str, colour: str = _INK) -> None:
    """Writes a bar's value at its end."""
    axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=_LABEL_POINTS, color=colour)


def _size(axes: Any, rows: Sequence[Row]) -> bool:
    sized = [row for row in rows if row.size_bytes]
    if not sized:
        return False
    colour = colours(rows)
    megabytes = [(row.size_bytes or 0) / 1e6 for row in sized]
    positions, names = range(len(sized)), [_wrapped(comparison.name(row, rows)) for row in sized]
    axes.figure.set_size_inches(_SIZE[0], max(_MIN_HEIGHT, 0.9 + max(0.42, _line_inches(names, 10)) * len(sized)))
    axes.barh(positions, megabytes, 0.6, color=[colour[row.model, row.label] for row in sized])
    for position, value in zip(positions, megabytes, strict=True):
        _value(axes, value, position, f"{value:.1f}")
    axes.set_yticks(positions, names)
    axes.invert_yaxis()
    axes.set_xlabel("size of the model file, MB")
    axes.grid(axis="x", color=_FAINT)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.18)
    return True


def _distribution(axes: Any, rows: Sequence[Row]) -> bool:
    """Draws all calls: boxes from the 25th to the 75th percentile, whiskers from the 1st to the 99th."""
    parts = [
        (row, length, number, row.latencies[length, number])
        for row in rows
        for length, number in sorted(row.latencies, reverse=True)
    ]
    if not parts:
        return False
    colour = colours(rows)
    boxes = []
    for row, length, number, measurement in parts:
        low, quarter, middle, three, high = np.percentile(measurement.latency_us, [1, 25, 50, 75, 99]) / 1e3
        box = {"whislo": low, "q1": quarter, "med": middle, "q3": three, "whishi": high, "fliers": []}
        boxes.append(
            {**box, "label": _wrapped(f"{comparison.name(row, rows)} ·\xa0{length}\xa0·\xa0{number}t", _BOX_CHARACTERS)}
        )
    line_inches = _line_inches([box["label"] for box in boxes], 8)
    axes.figure.set_size_inches(_SIZE[0], max(_MIN_HEIGHT, 0.9 + line_inches * len(parts)))
    drawn = axes.bxp(boxes, orientation="horizontal", patch_artist=True, widths=0.6)
    for patch, (row, *_) in zip(drawn["boxes"], parts, strict=True):
        patch.set(facecolor=colour[row.model, row.label], edgecolor=colour[row.model, row.label], alpha=0.75)
    for line in [*drawn["whiskers"], *drawn["caps"], *drawn["medians"]]:
        line.set(color=_INK, linewidth=1)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("latency, ms")
    axes.grid(axis="x", color=_FAINT)
    return True


def _threads(number: int) -> str:
    return f"{number} thread" if number == 1 else f"{number} threads"


def short(value: float) -> str:
    """Formats a number with three digits: 0.919, 9.00, 25.5, 1,234."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def _wrapped(name: str, characters: int = _NAME_CHARACTERS) -> str:
    return textwrap.fill(name, characters)


def _line_inches(names: Sequence[str], points: float) -> float:
    """Height of a bar with room for the name with the most lines."""
    return max(0.27, 1.35 * points / 72 * max(name.count("\n") + 1 for name in names))


def _legend(axes: Any) -> None:
    """Writes the legend above the plot, in two columns if they fit."""
    handles, names = axes.get_legend_handles_labels()
    two = max(map(len, names)) <= _NAME_CHARACTERS
    axes.legend(
        handles,
        [_wrapped(name, _LEGEND_CHARACTERS) for name in names],
        frameon=False,
        fontsize=_LABEL_POINTS,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=2 if two else 1,
    )
