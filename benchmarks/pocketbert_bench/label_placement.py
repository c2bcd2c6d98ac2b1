"""Place the labels of points so that none covers another label or a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# Left, bottom, right, top.
Box = tuple[float, float, float, float]
# Directions from a point in the order of preference: above first.
_DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))


def place(
    points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], *, radius: float, gap: float = 2.0
) -> list[tuple[float, float]]:
    """Computes the offset of each label's centre from its point.

    Labels are placed in sequence, each at the nearest free place: next to its point, otherwise one step further out.

    Args:
      points: (x, y) of each point; all lengths share one unit, such as 1/72 inch.
      sizes: (width, height) of each label.
      radius: radius of a point's marker.
      gap: distance between a label and its neighbours.
    """
    taken = [(x - radius, y - radius, x + radius, y + radius) for x, y in points]
    offsets = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        offset, box = next(
            (offset, box)
            for offset in _offsets(width, height, radius + gap)
            if not any(overlap(box := _box(x + offset[0], y + offset[1], width, height), other) for other in taken)
        )
        offsets.append(offset)
        taken.append(box)
    return offsets


def overlap(first: Box, second: Box) -> bool:
    """Whether two boxes overlap."""
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _offsets(width: float, height: float, away: float) -> Iterator[tuple[float, float]]:
    step = 0
    while True:
        for right, up in _DIRECTIONS:
            yield right * (width / 2 + away + step * width / 2), up * (height / 2 + away + step * height / 2)
        step += 1


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2
