"""Limits for a compressed model; the fields become flags. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.notation import argument
from pocketbert.options import FilePath, option_problems
from pocketbert_bench.adb import HOST

# Rounding may lose so many points.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constraints:
    """Limits for the finished bundle. Without any, the page shows every trade-off between speed and score.

    Attributes:
      max_latency_ms: maximum latency for one text on device, in milliseconds; the measured interval's upper end counts.
      length: tokens in the text for max_latency_ms; the bundle has this length (default: your texts' 95th percentile,
        rounded up to a multiple of 16). data limits the mean latency over your texts instead; the bundle then has up to
        four lengths, chosen to make it least.
      max_mb: maximum size of model.tflite, in MB of 10⁶ bytes.
      max_memory_mb: maximum peak resident memory on device, runtime included, as bench measures it, in MB of 10⁶ bytes.
      max_points_lost: find the fastest model that loses at most so many points in the main metric against the teacher's
        bundle. The dev split decides.
      max_class_points_lost: most points of right answers that a class may lose against the teacher's bundle, if it has
        at least 30 dev examples.
      device: where to measure: host, or a phone's serial number as listed by adb devices.
      apk: benchmark app, for a phone without it; built by make android.
      threads: threads for one call.
    Raises:
      UserError: a limit is not positive, or apk comes without a phone.
    """

    GROUP: ClassVar = "Limits"

    max_latency_ms: float | None = None
    length: int | Literal["data"] | None = None
    max_mb: float | None = None
    max_memory_mb: float | None = None
    max_points_lost: float | None = None
    max_class_points_lost: float | None = None
    device: str = HOST
    apk: FilePath | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        problems = option_problems(self)
        if self.apk is not None and self.device == HOST:
            problems.append(f"{argument('apk')} is for phones; received it without {argument('device')}; leave it out")
        raise_if_any(problems, "limits")

    @property
    def limits_costs(self) -> bool:
        """Whether latency, size or memory has a limit."""
        return any(limit is not None for limit in (self.max_latency_ms, self.max_mb, self.max_memory_mb))

    def least_score(self, teacher_score: float) -> float:
        """Returns the lowest score within `max_points_lost`; `teacher_score` is the teacher's on the same examples."""
        assert self.max_points_lost is not None
        return teacher_score - (self.max_points_lost + ROUNDING) / 100

    def excess(self, cost: Cost, latency_margin: float = 0.0) -> float:
        """Sums by how much costs exceed the limits, as fractions of the limits; 0 within them.

        Args:
          cost: latency, size and memory.
          latency_margin: part of the latency's limit to leave free.
        """
        pairs = (
            (self.max_latency_ms, cost.latency_ms / (1 - latency_margin)),
            (self.max_mb, cost.size_mb),
            (self.max_memory_mb, cost.memory_mb),
        )
        return sum(max(value / limit - 1, 0.0) for limit, value in pairs if limit is not None)

    def texts_with(self, length: int) -> str:
        """Describes the texts behind the latency: `length` tokens, or a mean over the data."""
        return "on average over your texts" if self.length == "data" else f"at {length} tokens"

    @property
    def text(self) -> str:
        """The limits in words."""
        limits = (
            (self.max_latency_ms, "at most {:g} ms"),
            (self.max_mb, "at most {:g} MB"),
            (self.max_memory_mb, "at most {:g} MB of memory"),
            (self.max_points_lost, "at most {:g} points lost"),
            (self.max_class_points_lost, "at most {:g} points lost in a class"),
        )
        return ", ".join(words.format(limit) for limit, words in limits if limit is not None) or "none"


def budget_problems(
    minutes: float | None, trials: int | None, measurements: str | os.PathLike[str] | None
) -> list[str]:
    """Lists problems if there is not exactly one budget, a time or a number of candidates."""
    problems = []
    if (minutes is None) == (trials is None):
        received = "neither" if minutes is None else "both"
        problems.append(f"pass either {argument('minutes')} or {argument('trials')}; received {received}")
    for name, value in (("minutes", minutes), ("trials", trials)):
        if value is not None and not value > 0:
            problems.append(f"{argument(name)} must be positive; received {value}")
    if measurements is not None and trials is None:
        problems.append(f"{argument('measurements')} repeats a run with {argument('trials')}; received none")
    return problems


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """A network's costs.

    Attributes:
      latency_ms: milliseconds for one text.
      size_mb: the file's size, in MB of 10⁶ bytes.
      memory_mb: peak resident memory, in MB of 10⁶ bytes.
    """

    latency_ms: float
    size_mb: float
    memory_mb: float
