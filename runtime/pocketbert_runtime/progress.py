"""Progress on stderr: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

from tqdm import tqdm
from tqdm.std import EMA

from pocketbert_runtime.errors import printable

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 5.0
# The first step traces a graph and takes hundreds of times longer than the others.
UNTIMED_UPDATES = 3


def log_info(message: str) -> None:
    """Prints one line to stderr; stdout is for results."""
    tqdm.write(printable(message), file=sys.stderr)


def bar(total: int | None, description: str, unit: str, initial: int = 0) -> tqdm:
    """Returns a tqdm bar on stderr with rate and time left.

    Without a terminal it prints at most one line every `SECONDS_BETWEEN_LINES`, to keep logs readable. Rate and time
    left are `?` during the first `UNTIMED_UPDATES` updates and exclude these later.

    Args:
      total: number of units, or None if unknown.
      description: name for the work.
      unit: a unit's name, for the rate.
      initial: units done earlier, for a resumed run.
    """
    description = printable(description)
    if sys.stderr.isatty():
        return _Bar(total=total, desc=description, unit=unit, initial=initial, file=sys.stderr)
    return _LineBar(total=total, desc=description, unit=unit, initial=initial)


def track(items: Iterable[Item], description: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yields `items` and shows a `bar`."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(total, description, unit) as progress:
        for item in items:
            yield item
            progress.update()


class _Bar(tqdm):
    """A tqdm bar with a rate that excludes the first updates."""

    def __init__(self, **options: object) -> None:
        self._updates = 0
        super().__init__(**options)

    def update(self, n: float | None = 1) -> bool | None:
        """Counts `n` more units."""
        shown = super().update(n)
        self._updates += 1
        if self._updates == UNTIMED_UPDATES:
            self._ema_dn, self._ema_dt, self._ema_miniters = (EMA(self.smoothing) for _ in range(3))
            self.last_print_t, self.last_print_n = self._time(), self.n
        return shown

    @property
    def format_dict(self) -> dict[str, Any]:
        """Values for a line."""
        fields = super().format_dict
        finished = self.total is not None and self.n >= self.total
        if not self.disable and not finished and not (self._updates >= UNTIMED_UPDATES and self._ema_dt()):
            # A rate of 0 is shown as `?`; without a rate tqdm would use the mean since the start.
            fields["rate"] = 0
        return fields


class _LineBar(_Bar):
    """A bar that writes lines instead of redrawing one."""

    def __init__(self, **options: object) -> None:
        self._last_line_at = time.monotonic()
        super().__init__(file=sys.stderr, mininterval=SECONDS_BETWEEN_LINES, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        now = time.monotonic()
        finished = self.total is not None and self.n >= self.total
        if now - self._last_line_at >= SECONDS_BETWEEN_LINES or (finished and not getattr(self, "_closed", False)):
            self._last_line_at = now
            self._closed = finished
            # The figures without the drawn bar, which is noise in a log.
            self.fp.write(self.format_meter(**{**self.format_dict, "ncols": 0}).strip() + "\n")
            self.fp.flush()
        return True

    def clear(self, nolock: bool = False) -> None:
        """Nothing to clear: lines stay."""
