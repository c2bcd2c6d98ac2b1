"""Progress on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 5.0


def log_info(message: str) -> None:
    """Prints one line for the person who waits; results go to stdout, this goes to stderr."""
    tqdm.write(message, file=sys.stderr)


def bar(total: int | None, description: str, unit: str, initial: int = 0) -> tqdm:
    """A tqdm bar on stderr with rate and time left.

    Off a terminal it prints a whole line at most every `SECONDS_BETWEEN_LINES`, so that logs stay readable.

    Args:
      total: number of units, or None if unknown.
      description: what is being done.
      unit: the unit's name, for the rate.
      initial: units done before (a resumed run).
    """
    if sys.stderr.isatty():
        return tqdm(total=total, desc=description, unit=unit, initial=initial, file=sys.stderr)
    return _LineBar(total=total, desc=description, unit=unit, initial=initial)


def track(items: Iterable[Item], description: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yields `items` under a `bar`."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(total, description, unit) as progress:
        for item in items:
            yield item
            progress.update()


class _LineBar(tqdm):
    """tqdm that writes lines instead of redrawing one."""

    def __init__(self, **options: object) -> None:
        self._last_line_at = time.monotonic()
        super().__init__(file=sys.stderr, mininterval=SECONDS_BETWEEN_LINES, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        now = time.monotonic()
        finished = self.total is not None and self.n >= self.total
        if now - self._last_line_at >= SECONDS_BETWEEN_LINES or (finished and not getattr(self, "_closed", False)):
            self._last_line_at = now
            self._closed = finished
            # A bar's own drawing is noise in a log; the figures are what is read.
            self.fp.write(self.format_meter(**{**self.format_dict, "ncols": 0}).strip() + "\n")
            self.fp.flush()
        return True

    def clear(self, nolock: bool = False) -> None:
        """Nothing to clear: lines stay."""
