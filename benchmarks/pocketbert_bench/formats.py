"""Format numbers on pages and in tables."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable

from pocketbert_bench import charts
from pocketbert_bench.results import DeviceConditions, Measurement


def times(factor: float | None) -> str:
    """Formats a factor: 3.42× or 12.5×."""
    return "" if factor is None else f"{factor:.2f}×" if factor < 10 else f"{factor:.1f}×"


def faster(ratio: float, digits: int) -> str:
    """Compares a network's latency with another, `ratio` times as long: 2.5 times faster, 1.2 times slower."""
    return f"{ratio:.{digits}f} times faster" if ratio >= 1 else f"{1 / ratio:.{digits}f} times slower"


def ms(microseconds: float | None) -> str:
    """Formats a latency in milliseconds with three digits: 9.00 ms, 25.5 ms, 1,234 ms."""
    return "" if microseconds is None else f"{charts.short(microseconds / 1e3)} ms"


def number(value: object) -> str:
    """Formats a check's value in a few digits."""
    if value is None or isinstance(value, bool):
        return ""
    if not isinstance(value, (int, float)):
        return str(value)
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _delegated(measurement: Measurement) -> str:
    return ", ".join(map(str, measurement.delegates)) or "none"


def _speeds(device: DeviceConditions) -> str:
    """The processors' current and maximum speed by kind: 4 at 1.79 of 1.79 GHz, 1 at 2.21 of 2.84 GHz."""
    kinds: dict[int, list[int]] = {}
    for name, highest in (device.processors_highest_khz or {}).items():
        if now := (device.processors_khz or {}).get(name):
            kinds.setdefault(highest, []).append(now)
    speeds = [
        f"{len(now)} at {min(now) / 1e6:.2f} of {highest / 1e6:.2f} GHz" for highest, now in sorted(kinds.items())
    ]
    return ", ".join(speeds) or "unknown"


FILTERS: dict[str, Callable[..., str]] = {
    "data_url": lambda text: f"data:text/markdown;charset=utf-8,{urllib.parse.quote(text)}",
    "times": times,
    "ms": ms,
    "number": number,
    "delegated": _delegated,
    "speeds": _speeds,
}
