"""Callbacks that keep training within a time."""

from __future__ import annotations

import time

from pocketbert._keras import tf_keras

# The first steps trace the graph and fill caches.
_WARM_UP, _TIMED = 3, 12


class Deadline(tf_keras.callbacks.Callback):
    """Stops training at a time.

    Args:
      seconds: seconds since the epoch, as `time.time` gives them.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Stops after this step if the time is over."""
        if time.time() > self._seconds:
            self.model.stop_training = True


class Pace(tf_keras.callbacks.Callback):
    """Times the first steps, and stops if all of them would take too long.

    Args:
      seconds: most seconds of all steps.

    Attributes:
      share: `seconds` divided by the predicted duration of all steps; None before it is known.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds, self._steps, self._began = seconds, 0, 0.0
        self.share: float | None = None

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Counts a step."""
        self._steps += 1
        if self._steps == _WARM_UP:
            self._began = time.monotonic()
        elif self._steps == _WARM_UP + _TIMED:
            duration = (time.monotonic() - self._began) / _TIMED * self.params["steps"]
            self.share = self._seconds / duration
            if self.share < 1:
                self.model.stop_training = True
