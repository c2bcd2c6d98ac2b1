"""Processes that work for another one: they end with it, and what they say is in a file."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path


def end_with_parent() -> None:
    """Makes this process end as soon as the one that started it is gone, however that ended.

    A killed process cannot stop its children, and as long as one works on, it holds the locks that keep the same
    command from going on.

    Raises:
      RuntimeError: this process was not started by `multiprocessing`.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a worker is a process that another one started")

    def follow(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()


@contextlib.contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Appends stderr to a file while active, including TensorFlow's own messages.

    Args:
      path: of the file; made with its folder if it is not there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as stream:
        sys.stderr.flush()
        # TensorFlow writes to the descriptor, whatever `sys.stderr` is.
        before = os.dup(2)
        os.dup2(stream.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)


@contextlib.contextmanager
def stderr_on_failure() -> Iterator[None]:
    """Holds back what is written to stderr inside, by C++ libraries too, and shows it only if the block raises."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "stderr")
        try:
            with stderr_in(kept):
                yield
        except BaseException:
            sys.stderr.write(kept.read_text(encoding="utf-8", errors="replace"))
            raise
