"""Work lists for a rerun to resume: an item is finished if its file exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from pocketbert.progress import log_info

Item = TypeVar("Item")


class WorkList(Generic[Item]):
    """Work items, as they were when the list was made.

    Attributes:
      pending: items to work on.
      finished: the others.
    """

    def __init__(self, items: Iterable[Item], is_finished: Callable[[Item], bool]) -> None:
        self.pending: list[Item] = []
        self.finished: list[Item] = []
        for item in items:
            (self.finished if is_finished(item) else self.pending).append(item)

    def log(self, folder: Path, name: str) -> None:
        """Logs the number of finished items, if any; `name` is their plural."""
        if self.finished:
            count = len(self.finished) + len(self.pending)
            log_info(f"{folder}: {len(self.finished)} of {count} {name} are already complete")
