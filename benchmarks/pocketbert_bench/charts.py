"""Draw the plots, as PNG files and as SVG elements for the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pocketbert_bench import comparison
from pocketbert_bench.comparison import Row
from pocketbert_bench.label_placement import place

# One colour per export; baselines are grey to set ours apart.
OURS = ("#0f766e", "#d97706", "#7c3aed", "#be185d", "#2563eb")
PEERS = ("#94a3b8", "#64748b", "#cbd5e1", "#475569")
_INK, _FAINT = "#1f2937", "#e5e7eb"
_PNG_DPI = 170
# Small figures, so that text stays readable at a phone's width.
_SIZE = (5.0, 3.5)
# In 1/72 inch.
_LABEL_POINTS, _MARKER_POINTS = 8.0, 7.0


def draw(found: Sequence[Row]) -> dict[str, tuple[bytes, str]]:
    """Draws all plots for which the rows have data.

    Args:
      found: rows from `comparison.rows`.
    Returns:
      name → (PNG, SVG element), in display order.
    """
    plots: dict[str, Callable[[Any, Sequence[Row]], bool]] = {
        "accuracy_latency": _accuracy_against_latency,
        "latency": _latency_by_length,
        "size": _size,
        "distribution": _distribution,
    }
    return {name: image for name, plot in plots.items() if (image := _image(plot, found))}


def colours(found: Sequence[Row]) -> dict[tuple[str, str], str]:
    """(network, export) → colour."""
    chosen, ours, peers = {}, iter(OURS * 9), iter(PEERS * 9)
    for row in found:
        if (row.model, row.label) not in chosen:
            chosen[row.model, row.label] = next(peers if row.peer else ours)
    return chosen


def _image(plot: Callable[[Any, Sequence[Row]], bool], found: Sequence[Row]) -> tuple[bytes, str] | None:
    # The object-oriented interface has no global state and needs no display.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {
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
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        if not plot(figure.add_subplot(), found):
            return None
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


def _accuracy_against_latency(axes: Any, found: Sequence[Row]) -> bool:
    scored = [row for row in found if row.accuracy and row.latencies]
    if not scored:
        return False
    thread_count, colour = comparison.threads(scored)[0], colours(found)
    labels: list[tuple[float, float, str]] = []
    for row in scored:
        assert row.accuracy
        points = sorted((length, row.latency_us(length, n)) for length, n in row.latencies if n == thread_count)
        xs, score = [latency / 1e3 for _, latency in points if latency], 100 * row.accuracy.value
        axes.plot(xs, [score] * len(xs), "-", color=colour[row.model, row.label], linewidth=1.5, alpha=0.5)
        axes.plot(
            xs,
            [score] * len(xs),
            "o",
            color=colour[row.model, row.label],
            label=comparison.name(row, found),
            markersize=_MARKER_POINTS,
        )
        labels += [(x, score, str(length)) for x, (length, _) in zip(xs, points, strict=True)]
    scores = [100 * row.accuracy.value for row in scored if row.accuracy]
    margin = max(2.0, max(scores) - min(scores))
    axes.set_ylim(min(scores) - margin, max(scores) + margin)
    axes.set_xlim(left=0)
    axes.grid(color=_FAINT)
    axes.set_xlabel(f"median latency, ms ({_threads(thread_count)}; labels: tokens)")
    metric = scored[0].accuracy.metric if scored[0].accuracy else ""
    axes.set_ylabel(f"{metric}, %")
    _legend(axes)
    _label(axes, labels)
    return True


def _label(axes: Any, labels: Sequence[tuple[float, float, str]]) -> None:
    """Writes a text next to each point (x, y, text), without overlaps; the plot must have its limits."""
    figure = axes.figure
    # The layout determines the scale from data to 1/72 inch.
    figure.draw_without_rendering()
    paper = 72 / figure.dpi
    points = [tuple(paper * axes.transData.transform((x, y))) for x, y, _ in labels]
    sizes = [(0.65 * _LABEL_POINTS * (len(text) + 1), 1.2 * _LABEL_POINTS) for *_, text in labels]
    for (x, y, text), offset in zip(labels, place(points, sizes, radius=_MARKER_POINTS / 2), strict=True):
        axes.annotate(
            text, (x, y), offset, textcoords="offset points", ha="center", va="center", fontsize=_LABEL_POINTS
        ).set_in_layout(False)


def _latency_by_length(axes: Any, found: Sequence[Row]) -> bool:
    measured = [row for row in found if row.latencies]
    if not measured:
        return False
    lengths, thread_count, colour = comparison.lengths(measured), comparison.threads(measured)[0], colours(found)
    width = 0.8 / len(measured)
    for index, row in enumerate(measured):
        for position, length in enumerate(lengths):
            own = row.latency_us(length, thread_count)
            latency = own or row.effective_latency_us(length, thread_count)
            if latency is None:
                continue
            x = position + (index - (len(measured) - 1) / 2) * width
            axes.bar(x, latency / 1e3, width * 0.92, color=colour[row.model, row.label], alpha=1 if own else 0.25)
            if own:
                text, above = f"{latency / 1e3:.3g}", {"xytext": (0, 2), "textcoords": "offset points"}
                axes.annotate(text, (x, latency / 1e3), ha="center", fontsize=7.5, **above)
        axes.bar(0, 0, color=colour[row.model, row.label], label=comparison.name(row, found))
    axes.set_xticks(range(len(lengths)), [f"{length} tokens" for length in lengths])
    axes.set_ylabel(f"median latency, ms ({_threads(thread_count)})")
    axes.grid(axis="y", color=_FAINT)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(lengths) - 0.5)
    axes.margins(y=0.12)
    _legend(axes)
    return True


def _size(axes: Any, found: Sequence[Row]) -> bool:
    sized = [row for row in found if row.size_bytes]
    if not sized:
        return False
    colour = colours(found)
    megabytes = [(row.size_bytes or 0) / 1e6 for row in sized]
    positions = range(len(sized))
    axes.barh(positions, megabytes, 0.6, color=[colour[row.model, row.label] for row in sized])
    for position, value in zip(positions, megabytes, strict=True):
        axes.annotate(f"{value:.1f}", (value, position), (4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(positions, [comparison.name(row, found) for row in sized])
    axes.invert_yaxis()
    axes.set_xlabel("size of the model file, MB")
    axes.grid(axis="x", color=_FAINT)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.14)
    return True


def _distribution(axes: Any, found: Sequence[Row]) -> bool:
    """Draws all calls: boxes from the 25th to the 75th percentile, whiskers from the 1st to the 99th."""
    parts = [
        (row, length, number, row.latencies[length, number])
        for row in found
        for length, number in sorted(row.latencies, reverse=True)
    ]
    if not parts:
        return False
    colour = colours(found)
    boxes = []
    for row, length, number, measurement in parts:
        low, quarter, middle, three, high = np.percentile(measurement.latency_us, [1, 25, 50, 75, 99]) / 1e3
        box = {"whislo": low, "q1": quarter, "med": middle, "q3": three, "whishi": high, "fliers": []}
        boxes.append({**box, "label": f"{comparison.name(row, found)} · {length} · {number}t"})
    axes.figure.set_size_inches(_SIZE[0], max(_SIZE[1], 0.9 + 0.27 * len(parts)))
    drawn = axes.bxp(boxes, orientation="horizontal", patch_artist=True, widths=0.6)
    for patch, (row, *_) in zip(drawn["boxes"], parts, strict=True):
        patch.set(facecolor=colour[row.model, row.label], edgecolor=colour[row.model, row.label], alpha=0.75)
    for line in [*drawn["whiskers"], *drawn["caps"], *drawn["medians"]]:
        line.set(color=_INK, linewidth=1)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("milliseconds per call")
    axes.grid(axis="x", color=_FAINT)
    return True


def _threads(number: int) -> str:
    return f"{number} thread" if number == 1 else f"{number} threads"


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)
