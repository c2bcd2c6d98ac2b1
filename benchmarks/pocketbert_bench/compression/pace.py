"""Callbacks that keep training within a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from pocketbert._keras import tf_keras


class Deadline(tf_keras.callbacks.Callback):
    """Stops training at a time; a stage that is not the last one stops earlier, so that all have an equal time.

    Args:
      seconds: seconds since the epoch, as `time.time` gives them.
      least_steps: steps that each stage makes in any case.
      stages: names of the stages in order; a single one needs none.
    """

    def __init__(self, seconds: float, least_steps: int = 1, stages: Sequence[str] = ()) -> None:
        super().__init__()
        self._seconds, self._end, self._least_steps, self._steps = seconds, seconds, least_steps, 0
        self._stages = stages

    def on_stage_begin(self, name: str, logs: object = None) -> None:
        """Divides the time that is left; a resumed run begins with its unfinished stage."""
        parts = len(self._stages) - self._stages.index(name) if name in self._stages else 1
        now = time.time()
        self._end, self._steps = now + (self._seconds - now) / parts, 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Stops after this step if the time is over."""
        self._steps += 1
        if self._steps >= self._least_steps and time.time() > self._end:
            self.model.stop_training = True


class Paced(Exception):
    """Ends a run whose pace is known.

    Attributes:
      seconds_a_step: mean duration after the first steps, which trace the graph and fill caches.
    """

    def __init__(self, seconds_a_step: float) -> None:
        super().__init__()
        self.seconds_a_step = seconds_a_step


class Pace(tf_keras.callbacks.Callback):
    """Times the steps of a short run, and ends it.

    Raises:
      Paced: after some steps.
    """

    WARM_UP: ClassVar = 3
    STEPS: ClassVar = 9

    def __init__(self) -> None:
        super().__init__()
        self._steps, self._began = 0, 0.0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Counts a step."""
        self._steps += 1
        if self._steps == self.WARM_UP:
            self._began = time.monotonic()
        elif self._steps == self.STEPS:
            raise Paced((time.monotonic() - self._began) / (self.STEPS - self.WARM_UP))
