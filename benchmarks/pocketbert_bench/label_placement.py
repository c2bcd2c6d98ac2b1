"""Place labels beside points so that none covers another label or a point."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

# Left, bottom, right, top.
Box = tuple[float, float, float, float]
_MOST_STEPS = 40
# Directions from a point, the preferred ones first: above.
_DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))


def place(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    *,
    radius: float,
    gap: float = 2.0,
    obstacles: Sequence[Box] = (),
    within: Box | None = None,
) -> list[tuple[float, float]]:
    """Computes the offset from each point to its label's centre.

    Labels are placed in sequence, each at the nearest free place: next to its point, otherwise one step further out. If
    `within` has no free place, the label stands outside.

    Args:
      points: each point's (x, y); all lengths share one unit, such as 1/72 inch.
      sizes: each label's (width, height).
      radius: marker radius around a point.
      gap: distance between a label and its neighbours.
      obstacles: boxes to keep free, such as lines.
      within: box for the labels.
    """
    taken = [(x - radius, y - radius, x + radius, y + radius) for x, y in points] + list(obstacles)
    offsets = []
    for point, size in zip(points, sizes, strict=True):
        offset, box = next(_free(point, size, radius + gap, taken, within), None) or next(
            _free(point, size, radius + gap, taken, None)
        )
        offsets.append(offset)
        taken.append(box)
    return offsets


def overlap(first: Box, second: Box) -> bool:
    """Whether two boxes overlap."""
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _free(
    point: tuple[float, float], size: tuple[float, float], away: float, taken: Sequence[Box], within: Box | None
) -> Iterator[tuple[tuple[float, float], Box]]:
    """Offsets and boxes for free places, the nearest first."""
    width, height = size
    for step in range(_MOST_STEPS) if within else itertools.count():
        for right, up in _DIRECTIONS:
            x, y = right * (width / 2 + away + step * width / 2), up * (height / 2 + away + step * height / 2)
            left, bottom = point[0] + x - width / 2, point[1] + y - height / 2
            box = left, bottom, point[0] + x + width / 2, point[1] + y + height / 2
            is_outside = within and (left < within[0] or bottom < within[1] or box[2] > within[2] or box[3] > within[3])
            if not is_outside and not any(overlap(box, other) for other in taken):
                yield (x, y), box
