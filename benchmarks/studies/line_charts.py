"""Draw small line charts with spread, as one SVG element without blank lines for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# In pixels.
_PANEL, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP, _LEGEND = 250, 150, 44, 26, 30, 14, 22
_INK, _FAINT = "#1f2937", "#d1d5db"
_COLOURS = ("#0f766e", "#b45309", "#7c3aed", "#2563eb")
# Characters of a legend's entry, in pixels, with the line in front.
_CHARACTER, _ENTRY = 6.2, 30


@dataclass(frozen=True)
class Point:
    """A value with its spread, at one place of the axis."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart.

    Attributes:
      title: its heading.
      places: names on the horizontal axis, at equal distances.
      lines: name of a line → one point per place; None where nothing is measured.
    """

    title: str
    places: Sequence[str]
    lines: Mapping[str, Sequence[Point | None]]


def drawing(title: str, axis: str, panels: Sequence[Panel], columns: int = 3) -> str:
    """Draws panels in rows; all have the same lines, and each its own vertical range.

    Args:
      title: description for readers without the picture.
      axis: name of the horizontal axis.
      panels: the charts.
      columns: charts per row.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    step = _TOP + _HEIGHT + _BOTTOM
    width, height = columns * (_LEFT + _PANEL) + (columns - 1) * _GAP, rows * step + 2 * _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11" fill="{_INK}" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, panel in enumerate(panels):
        left = (index % columns) * (_LEFT + _PANEL + _GAP) + _LEFT
        parts += _panel(panel, left, index // columns * step + _TOP)
    x: float = _LEFT
    for name, colour in zip(panels[0].lines, _COLOURS, strict=False):
        parts.append(f'<path d="M{x:.1f} {height - 30}h16" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 20, height - 26, name, "start"))
        x += _ENTRY + _CHARACTER * len(name)
    parts.append(_text(width / 2, height - 8, axis, "middle"))
    return "\n".join([*parts, "</svg>"])


def _panel(panel: Panel, left: float, top: float) -> list[str]:
    """Draws one chart with its axes."""
    points = [point for line in panel.lines.values() for point in line if point]
    low, high = (min(point.low for point in points), max(point.high for point in points)) if points else (0.0, 1.0)
    margin = 0.06 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def at(place: int, value: float) -> tuple[float, float]:
        x = left + _PANEL * (place + 0.5) / len(panel.places)
        return x, top + _HEIGHT * (high - value) / (high - low)

    parts = [_text(left + _PANEL / 2, top - 8, panel.title, "middle")]
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        _, y = at(0, value)
        parts.append(f'<path d="M{left} {y:.1f}h{_PANEL}" stroke="{_FAINT}"/>')
        parts.append(_text(left - 5, y + 4, f"{value:.1f}", "end"))
    for place, name in enumerate(panel.places):
        parts.append(_text(at(place, low)[0], top + _HEIGHT + 14, name, "middle"))
    for line, colour in zip(panel.lines.values(), _COLOURS, strict=False):
        found = [(place, point) for place, point in enumerate(line) if point]
        corners = [at(place, point.value) for place, point in found]
        outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
        if outline:
            parts.append(f'<path d="M{outline}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (place, point), (x, y) in zip(found, corners, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            if point.high > point.low:
                below, above = at(place, point.low)[1], at(place, point.high)[1]
                parts.append(f'<path d="M{x:.1f} {below:.1f}V{above:.1f}" stroke="{colour}"/>')
    return parts


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
