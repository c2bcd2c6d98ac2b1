"""Worker processes: end with the parent, and redirect stderr to files."""

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
    """Ends this process as soon as its parent has ended, even if the parent was killed.

    A killed process cannot stop its children. A child that keeps running would hold locks, so you could not rerun the
    command.

    Raises:
      RuntimeError: `multiprocessing` did not start this process.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("end_with_parent needs a process that multiprocessing started")

    def follow(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()


@contextlib.contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Redirects stderr, including messages of TensorFlow's C++ code, to a file inside the block.

    Args:
      path: the file to append to; created with its folder if missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as stream:
        sys.stderr.flush()
        # TensorFlow writes to the file descriptor, not to `sys.stderr`.
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
    """Captures stderr inside the block, also that of C++ code, and prints it only if the block raises."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "stderr")
        try:
            with stderr_in(kept):
                yield
        except BaseException:
            sys.stderr.write(kept.read_text(encoding="utf-8", errors="replace"))
            raise
