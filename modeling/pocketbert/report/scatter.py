"""A page's scatter plot of scores: coordinates for points, the front as steps, and axis labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

# The plot area is 292 x 176, with its upper left corner at (56, 16).
_LEFT, _TOP, _WIDTH, _HEIGHT = 56, 16, 292, 176


class Scatter:
    """A plot's area.

    Args:
      xs: values on the horizontal axis, in any order; the area ends at the lowest and the highest.
      ys: values on the vertical axis.
    """

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self._xs, self._ys = (min(xs), max(xs)), (min(ys), max(ys))

    def x(self, value: float) -> float:
        """Returns the horizontal coordinate."""
        return round(_LEFT + _WIDTH * _share(value, *self._xs), 1)

    def y(self, value: float) -> float:
        """Returns the vertical coordinate, from above."""
        return round(_TOP + _HEIGHT * (1 - _share(value, *self._ys)), 1)

    def steps(self, corners: Iterable[tuple[float, float]]) -> str:
        """Returns a path with steps through points, from left to right, up to the right end; empty without points."""
        line = "".join(f" H{self.x(x)} V{self.y(y)}" for x, y in corners)
        return line.replace(" H", "M", 1).replace("V", "", 1) + f" H{_LEFT + _WIDTH}" if line else ""

    def labels(self, x_text: Callable[[float], str], y_text: Callable[[float], str]) -> dict[str, Any]:
        """Returns texts for the axes' ends: `ticks` on the left, `places` below."""
        left, right = self._xs
        return {
            "ticks": [{"y": self.y(value), "text": y_text(value)} for value in sorted({*self._ys})],
            "places": [
                {"x": _LEFT, "text": x_text(left), "anchor": "start"},
                {"x": _LEFT + _WIDTH, "text": x_text(right), "anchor": "end"},
            ],
        }


def axis_range(numbers: Sequence[float]) -> tuple[float, float]:
    """Returns an axis range with a margin around the numbers; it is not empty for equal numbers."""
    margin = max(0.05 * (max(numbers) - min(numbers)), 5e-4)
    return min(numbers) - margin, max(numbers) + margin


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
