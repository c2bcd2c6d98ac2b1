"""The machine's load while a configuration was timed.

Load averages do not cover a measurement's seconds, and in a virtual machine they do not show the neighbours. So each
turn records four values: other processes' processor time, time taken by the virtual machine's host (steal), the
measured process's waiting time for a processor, and the duration of a fixed calculation.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pocketbert_bench import statistics
from pocketbert_bench.schema import note

# Field, lowest value on a busy machine, digits to show, sentence.
_SIGNS = (
    ("others_cpu_percent", 10, 0, "other processes used {} % of the CPU"),
    ("steal_percent", 5, 0, "the virtual machine's host kept {} % of the CPU"),
    ("waiting_percent", 5, 0, "the measured process waited for a CPU {} % of the time"),
    ("calibration_ratio", 1.25, 2, "a fixed calculation took {} times its shortest time"),
)
# The system counts processor time in ticks of 10 ms; below this duration, one tick would be several percent.
FEWEST_SECONDS = 0.25
_CALIBRATION_REPEATS = 3


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load of the machine while a configuration was timed, and the spread of its rounds."""

    others_cpu_percent: float | None = note(
        "processor time of other processes, in percent of all processors' time; null if unknown or too short",
        minimum=0, maximum=100,
    )  # fmt: skip
    steal_percent: float | None = note(
        "time taken by a virtual machine's host, in percent of all processors' time; null if unknown or too short",
        minimum=0, maximum=100,
    )  # fmt: skip
    waiting_percent: float | None = note(
        "time that the measured process waited, in percent of its running and waiting time; null if unknown",
        minimum=0, maximum=100,
    )  # fmt: skip
    calibration_ratio: float = note(
        "median duration of a fixed calculation during these calls ÷ its minimum in the run; 1 on a quiet machine",
        minimum=1,
    )  # fmt: skip
    round_spread_percent: float = note(
        "largest minus smallest round median, in percent of the median of round medians", minimum=0
    )

    @property
    def busy_because(self) -> str:
        """Signs of a busy machine, in words; empty if there are none."""
        return busy_signs([self])


@dataclass(frozen=True, kw_only=True)
class Processors:
    """All processors' time since the machine started, in seconds.

    Attributes:
      total: all time, including idle time.
      busy: time running anything, including interrupts.
      steal: time taken by the virtual machine's host; 0 without one.
      own: the benchmark's part of `busy`, without the measured process.
    """

    total: float
    busy: float
    steal: float
    own: float


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn for a configuration.

    Attributes:
      wall_seconds: duration.
      processors: change in the processors' counters, or None if the system does not provide them.
      process_seconds: the measured process's processor time.
      waiting_seconds: its threads' waiting time for a processor; None if unknown.
      calibration_us: duration of the fixed calculation before and after.
    """

    wall_seconds: float
    processors: Processors | None
    process_seconds: float
    waiting_seconds: float | None
    calibration_us: tuple[float, ...]


class Meter:
    """Reads the clocks around a turn: call `start` before it and `stop` after it."""

    def start(self) -> None:
        """Takes the readings before the turn."""
        self._calibration_us = calibration_us()
        self._before, self._began = processors(), time.monotonic()

    def stop(self, process_seconds: float, waiting_seconds: float | None) -> Turn:
        """Takes the readings after the turn.

        Args:
          process_seconds: the measured process's processor time in the turn.
          waiting_seconds: its threads' waiting time; None if unknown.
        """
        after, wall_seconds = processors(), time.monotonic() - self._began
        passed = None
        if self._before and after:
            before, now = (dataclasses.asdict(counted) for counted in (self._before, after))
            passed = Processors(**{name: now[name] - before[name] for name in now})
        return Turn(
            wall_seconds=wall_seconds,
            processors=passed,
            process_seconds=process_seconds,
            waiting_seconds=waiting_seconds,
            calibration_us=(self._calibration_us, calibration_us()),
        )


def processors() -> Processors | None:
    """Reads the machine's current counters; None if the system provides none."""
    import psutil

    try:
        times = psutil.cpu_times()
    except (OSError, NotImplementedError, RuntimeError, ValueError):
        return None
    return counters(times._asdict(), own=time.process_time())


def counters(times: dict[str, float], own: float) -> Processors | None:
    """Converts counters by name, as in /proc/stat, to `Processors`; None if nothing is counted."""
    # A guest's time is part of user and nice.
    parts = {name: seconds for name, seconds in times.items() if name not in ("guest", "guest_nice")}
    steal, total = parts.get("steal", 0.0), sum(parts.values())
    idle = parts.get("idle", 0.0) + parts.get("iowait", 0.0)
    return Processors(total=total, busy=total - idle - steal, steal=steal, own=own) if total > 0 else None


def calibration_us() -> float:
    """Times a fixed calculation in microseconds: the median over a few repeats, each about a millisecond."""
    durations = []
    for _ in range(_CALIBRATION_REPEATS):
        began = time.perf_counter_ns()
        values = _CALIBRATION_VALUES
        for _ in range(4):
            values = values * 5 + 1
        durations.append((time.perf_counter_ns() - began) / 1e3)
    return float(np.median(durations))


def summarize(
    turns: Sequence[Turn], fastest_calibration_us: float, latency_us: Sequence[float], round_sizes: Sequence[int]
) -> Load | None:
    """Computes a configuration's `Load`; None without turns.

    Args:
      turns: the configuration's turns.
      fastest_calibration_us: the fixed calculation's minimum duration in the whole run.
      latency_us: all calls.
      round_sizes: number of calls in each round.
    """
    if not turns:
        return None
    medians = statistics.round_medians(latency_us, round_sizes)
    calibration = float(np.median([value for turn in turns for value in turn.calibration_us]))
    waited = [turn.waiting_seconds for turn in turns if turn.waiting_seconds is not None]
    busy = sum(waited) + sum(turn.process_seconds for turn in turns)
    is_known = len(waited) == len(turns) and busy > 0
    return Load(
        others_cpu_percent=_percent_of_processors(turns, lambda turn, passed: passed.busy - passed.own
                                                  - turn.process_seconds),
        steal_percent=_percent_of_processors(turns, lambda _, passed: passed.steal),
        waiting_percent=round(100 * sum(waited) / busy, 1) if is_known else None,
        calibration_ratio=round(calibration / fastest_calibration_us, 3),
        round_spread_percent=round(100 * float((medians.max() - medians.min()) / np.median(medians)), 1),
    )  # fmt: skip


def warning(loads: Sequence[Load]) -> str | None:
    """Returns a warning about a run on a busy machine, with ranges; None if it was quiet."""
    busy = sum(bool(load.busy_because) for load in loads)
    if not busy:
        return None
    return (
        f"the machine was busy in {busy} of {len(loads)} measurements ({busy_signs(loads)}); "
        "these latencies are too high: close other programs and measure again"
    )


def busy_signs(loads: Sequence[Load]) -> str:
    """Lists signs of a busy machine, each with its range over the measurements that show it; empty if none does."""
    signs = []
    for name, limit, digits, sentence in _SIGNS:
        values = [value for load in loads if (value := getattr(load, name)) is not None and value >= limit]
        if values:
            ends = dict.fromkeys(f"{end:.{digits}f}" for end in (min(values), max(values)))
            signs.append(sentence.format("–".join(ends)))
    return ", ".join(signs)


def _percent_of_processors(turns: Sequence[Turn], part: Any) -> float | None:
    passed = [(turn, turn.processors) for turn in turns if turn.processors]
    total = sum(processors.total for _, processors in passed)
    if len(passed) < len(turns) or total <= 0 or sum(turn.wall_seconds for turn in turns) < FEWEST_SECONDS:
        return None
    share = sum(part(turn, processors) for turn, processors in passed) / total
    # Ticks and clocks round differently.
    return round(100 * min(max(share, 0.0), 1.0), 1)


# Larger than a first-level cache, so that neighbours on other cores show too.
_CALIBRATION_VALUES = np.arange(1 << 17, dtype=np.int64)
