"""Load of the machine while a configuration was timed.

A load average says nothing of the seconds that count, and in a virtual machine nothing of the neighbours. So four
figures are taken beside every turn: the processor time of other processes, the time that the virtual machine's host
kept (steal), how long the measured process waited for a processor, and how long a fixed calculation takes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pocketbert_bench import statistics
from pocketbert_bench.schema import note

# The system counts processor time in ticks of 10 ms; over less than this, one tick would be several percent.
FEWEST_SECONDS = 0.25
_CALIBRATION_REPEATS = 3


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load of the machine while a configuration was timed, and the spread of its rounds."""

    others_cpu_percent: float | None = note(
        "processor time of other processes, of all processors' time; null where unknown or too short to tell",
        minimum=0, maximum=100,
    )  # fmt: skip
    steal_percent: float | None = note(
        "time that the virtual machine's host kept, of all processors' time; null where unknown or too short to tell",
        minimum=0, maximum=100,
    )  # fmt: skip
    waiting_percent: float | None = note(
        "time that the measured process waited for a processor, of its running and waiting time; null where unknown",
        minimum=0, maximum=100,
    )  # fmt: skip
    calibration_ratio: float = note(
        "a fixed calculation's median time beside these calls over its shortest in the run; 1 on a quiet machine",
        minimum=1,
    )  # fmt: skip
    round_spread_percent: float = note("largest minus smallest round median, of the median of them", minimum=0)

    @property
    def busy_because(self) -> str:
        """Signs that the machine was busy, in words; empty if there are none."""
        said = [
            f"{value:.0f} % of {what}"
            for value, limit, what in (
                (self.others_cpu_percent, 10, "CPU used by others"),
                (self.steal_percent, 5, "CPU kept by the virtual machine's host"),
                (self.waiting_percent, 5, "its time spent waiting for a CPU"),
            )
            if value is not None and value >= limit
        ]
        if self.calibration_ratio >= 1.25:
            said.append(f"a fixed calculation took {self.calibration_ratio:.2f} times its shortest time")
        return ", ".join(said)


@dataclass(frozen=True, kw_only=True)
class Processors:
    """All processors' time since the machine started, in seconds.

    Attributes:
      total: idle time included.
      busy: running anything, interrupts included.
      steal: kept by the virtual machine's host; 0 without one.
      own: the benchmark's own share of `busy`, without the measured process.
    """

    total: float
    busy: float
    steal: float
    own: float


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a configuration.

    Attributes:
      wall_seconds: its duration.
      processors: what passed on all processors, or None where the system does not show it.
      process_seconds: processor time of the measured process.
      waiting_seconds: time that its threads were ready and waited for a processor; None where unknown.
      calibration_us: the fixed calculation's time before and after.
    """

    wall_seconds: float
    processors: Processors | None
    process_seconds: float
    waiting_seconds: float | None
    calibration_us: tuple[float, ...]

    @property
    def shortest_calibration_us(self) -> float:
        """The shorter of the fixed calculation's times."""
        return min(self.calibration_us)


class Meter:
    """Reads the clocks around one turn: `start` before it, `stop` after it."""

    def start(self) -> None:
        """Takes the readings before the turn."""
        self._calibration_us = calibration_us()
        self._before, self._began = processors(), time.monotonic()

    def stop(self, process_seconds: float, waiting_seconds: float | None) -> Turn:
        """Takes the readings after the turn.

        Args:
          process_seconds: processor time of the measured process in the turn.
          waiting_seconds: what its threads waited; None where unknown.
        """
        after, wall_seconds = processors(), time.monotonic() - self._began
        passed = None
        if self._before and after:
            passed = Processors(
                total=after.total - self._before.total,
                busy=after.busy - self._before.busy,
                steal=after.steal - self._before.steal,
                own=after.own - self._before.own,
            )
        return Turn(
            wall_seconds=wall_seconds,
            processors=passed,
            process_seconds=process_seconds,
            waiting_seconds=waiting_seconds,
            calibration_us=(self._calibration_us, calibration_us()),
        )


def processors() -> Processors | None:
    """The machine's counters, now; None where the system shows none."""
    import psutil

    try:
        times = psutil.cpu_times()
    except (OSError, NotImplementedError, RuntimeError, ValueError):
        return None
    return counters(times._asdict(), own=time.process_time())


def counters(times: dict[str, float], own: float) -> Processors | None:
    """`Processors` from the system's counters by name, as in /proc/stat; None if nothing is counted."""
    # A guest's time is a part of user's and nice's.
    parts = {name: seconds for name, seconds in times.items() if name not in ("guest", "guest_nice")}
    steal, total = parts.get("steal", 0.0), sum(parts.values())
    idle = parts.get("idle", 0.0) + parts.get("iowait", 0.0)
    return Processors(total=total, busy=total - idle - steal, steal=steal, own=own) if total > 0 else None


def calibration_us() -> float:
    """Time of a fixed calculation in microseconds: the median of a few repeats of about a millisecond."""
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
    """A configuration's `Load`; None if it had no turn.

    Args:
      turns: its turns.
      fastest_calibration_us: the fixed calculation's shortest time in the whole run.
      latency_us: all calls.
      round_sizes: calls in each round.
    """
    if not turns:
        return None
    medians = statistics.round_medians(latency_us, round_sizes)
    calibration = float(np.median([value for turn in turns for value in turn.calibration_us]))
    return Load(
        others_cpu_percent=_percent_of_processors(turns, lambda turn, passed: passed.busy - passed.own
                                                  - turn.process_seconds),
        steal_percent=_percent_of_processors(turns, lambda _, passed: passed.steal),
        waiting_percent=_waiting_percent(turns),
        calibration_ratio=round(calibration / fastest_calibration_us, 3),
        round_spread_percent=round(100 * float((medians.max() - medians.min()) / np.median(medians)), 1),
    )  # fmt: skip


def warning(loads: Sequence[Load]) -> str | None:
    """One sentence about a run on a busy machine, with the worst figures; None if it was quiet."""
    busy = [load for load in loads if load.busy_because]
    if not busy:
        return None
    worst = Load(
        **{
            name: max((value for load in busy if (value := getattr(load, name)) is not None), default=None)
            for name in Load.__dataclass_fields__
        }  # type: ignore[arg-type]
    )
    return (
        f"machine was busy while {len(busy)} of {len(loads)} configurations were timed: {worst.busy_because}; "
        "latencies may be too high: close other programs and measure again"
    )


def _percent_of_processors(turns: Sequence[Turn], part: Any) -> float | None:
    passed = [(turn, turn.processors) for turn in turns if turn.processors]
    total = sum(each.total for _, each in passed)
    if len(passed) < len(turns) or total <= 0 or sum(turn.wall_seconds for turn in turns) < FEWEST_SECONDS:
        return None
    share = sum(part(turn, each) for turn, each in passed) / total
    # Ticks and clocks round differently.
    return round(100 * min(max(share, 0.0), 1.0), 1)


def _waiting_percent(turns: Sequence[Turn]) -> float | None:
    waited = [turn.waiting_seconds for turn in turns if turn.waiting_seconds is not None]
    wanted = sum(waited) + sum(turn.process_seconds for turn in turns)
    return round(100 * sum(waited) / wanted, 1) if len(waited) == len(turns) and wanted > 0 else None


# Larger than a first-level cache, so that neighbours on other cores show too.
_CALIBRATION_VALUES = np.arange(1 << 17, dtype=np.int64)
