"""Limits of a compressed model. The fields become flags. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.notation import argument
from pocketbert.options import FilePath, option_problems
from pocketbert_bench.adb import HOST

# Loss in points by rounding.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constraints:
    """Limits that the finished bundle must meet. Without any, the page shows every trade-off between speed and score.

    Attributes:
      max_latency_ms: maximum latency of one text on device, in milliseconds; the upper end of the measured interval
        counts.
      length: tokens of the text for max_latency_ms; the bundle has this length (default: the 95th percentile of your
        texts, rounded up to a multiple of 16). data limits the mean latency over your texts instead; the bundle then
        has up to four lengths that make it least.
      max_mb: maximum size of model.tflite, in MB of 10⁶ bytes.
      max_memory_mb: maximum peak of resident memory on device, runtime included, as bench measures it, in MB of 10⁶
        bytes.
      max_points_lost: find the fastest model that loses at most so many points of the main metric against the
        teacher's bundle. The dev split decides.
      max_class_points_lost: most points of right answers that a class may lose against the teacher's bundle, if it has
        at least 30 dev examples.
      device: where to measure: host, or a phone's serial number as listed by adb devices.
      apk: benchmark app, for a phone without it; built by make android.
      threads: threads of one call.

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
        """The lowest score that `max_points_lost` allows; `teacher_score` is the teacher's on the same examples."""
        assert self.max_points_lost is not None
        return teacher_score - (self.max_points_lost + ROUNDING) / 100

    def excess(self, cost: Cost, latency_margin: float = 0.0) -> float:
        """How far costs exceed the limits, as a sum of fractions of the limits; 0 within them.

        Args:
          cost: latency, size and memory.
          latency_margin: share of the latency's limit that must stay free.
        """
        pairs = (
            (self.max_latency_ms, cost.latency_ms / (1 - latency_margin)),
            (self.max_mb, cost.size_mb),
            (self.max_memory_mb, cost.memory_mb),
        )
        return sum(max(value / limit - 1, 0.0) for limit, value in pairs if limit is not None)

    def texts_with(self, length: int) -> str:
        """The texts of the latency in words; `length` is their number of tokens, unless it is a mean over the data."""
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
    """Problems of the time or the number of candidates, of which there must be one."""
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
    """Costs of a network.

    Attributes:
      latency_ms: milliseconds for one text.
      size_mb: size of the file, in MB of 10⁶ bytes.
      memory_mb: peak of resident memory, in MB of 10⁶ bytes.
    """

    latency_ms: float
    size_mb: float
    memory_mb: float
