"""The time a run has taken, over all attempts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pocketbert.files import write_json
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import parse_json, read_bytes, read_members

# Seconds between two saves, and more seconds than any run has.
_SAVED_EVERY, _MOST = 5.0, 1e12
# Returns the number that an earlier attempt recorded under a name, or records a new one.
Record = Callable[[str, Callable[[], float]], float]


class RunClock:
    """Counts seconds inside its `with` blocks, over all attempts; one block at a time.

    Args:
      path: the file with the seconds; it may be missing.
    Attributes:
      recorded: numbers from all attempts, by name.
    Raises:
      UserError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, 0.0
        self.recorded: dict[str, float] = {}
        self._began: float | None = None
        self._saver: threading.Thread | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        if path.exists():
            where = f"{path} is damaged; pass {argument('overwrite', True)} to repeat the run"
            content = parse_json(read_bytes(path), where)
            numbers = content if isinstance(content, dict) else ()
            self.recorded = read_members(content, {"seconds": float} | dict.fromkeys(numbers, float), where)
            self._before = self.recorded["seconds"]

    def __enter__(self) -> RunClock:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._before, self._began = self.seconds, None
        if self._saver is not None:
            self._ended.set()
            self._saver.join()
            self._saver = None
            self._save()

    @property
    def seconds(self) -> float:
        """Seconds until now."""
        return self._before + (0.0 if self._began is None else time.monotonic() - self._began)

    def start_saving(self) -> None:
        """Writes the file every few seconds until the block ends, so that a kill loses little."""
        self._ended.clear()
        self._saver = threading.Thread(target=self._save_often, daemon=True)
        self._saver.start()

    def record(self, name: str, value: Callable[[], float]) -> float:
        """Returns the number from an earlier attempt, or records a new one."""
        if name not in self.recorded:
            self.recorded[name] = min(value(), _MOST)
            self._save()
        return self.recorded[name]

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Records the block's duration, unless an earlier attempt did."""
        began = time.monotonic()
        yield
        self.record(name, lambda: time.monotonic() - began)

    def _save_often(self) -> None:
        while not self._ended.wait(_SAVED_EVERY):
            self._save()

    def _save(self) -> None:
        with self._lock:
            write_json(self._path, self.recorded | {"seconds": self.seconds})
