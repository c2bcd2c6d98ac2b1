"""A callback to keep training within a time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from pocketbert._keras import tf_keras
from pocketbert.progress import log_info

# The first steps trace the graph and fill caches, so they tell no pace.
_WARM_UP = 3
# Coarse clocks may not have moved, in seconds.
_TICK = 1e-6


class Deadline(tf_keras.callbacks.Callback):
    """Ends training at a time, with as many steps as fit.

    The learning rate falls to its end in these steps, instead of being cut. Stages share the time left equally.

    Args:
      seconds: seconds since the epoch, as from `time.time`.
      least_steps: steps in each stage in any case.
      stages: the stages' names in order; a single one needs none.
    """

    def __init__(self, seconds: float, least_steps: int = 1, stages: Sequence[str] = ()) -> None:
        super().__init__()
        self._seconds, self._least_steps, self._stages = seconds, least_steps, stages
        self._end, self._warm = seconds, 0.0
        self._first: int | None = None

    def on_stage_begin(self, name: str, logs: object = None) -> None:
        """Divides the time left; a resumed run begins with its unfinished stage."""
        parts = len(self._stages) - self._stages.index(name) if name in self._stages else 1
        now = time.time()
        self._end, self._first = now + (self._seconds - now) / parts, None

    def steps_of_stage(self, taken: int, planned: int) -> int | None:
        """Returns the stage's number of steps, by the pace since it began or resumed; None while unknown."""
        now = time.time()
        if self._first is None:
            self._first = taken - 1
        timed = taken - self._first - _WARM_UP
        if timed == 0:
            self._warm = now
        if timed > 0:
            fitting = taken + math.floor(max(self._end - now, 0) * timed / max(now - self._warm, _TICK))
        elif now > self._end:
            fitting = taken
        else:
            return None
        steps = min(max(fitting, self._least_steps, taken), planned)
        if taken == steps < planned:
            log_info(f"the time is over after {taken:,} of {planned:,} steps")
        return steps
