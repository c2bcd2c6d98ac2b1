"""Worker processes: end with the parent, and redirect stderr to files."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pocketbert.errors import printable
from pocketbert.notation import Notation, current_notation, set_notation

_PR_SET_PDEATHSIG = 1
_SECONDS_BETWEEN_LOOKS = 0.2


class Parent(NamedTuple):
    """A parent process, as its worker processes must know it.

    Attributes:
      temporary: its `tempfile.tempdir`.
      in_main_thread: whether its main thread starts the worker.
      notation: its notation for arguments in messages.
    """

    temporary: str | None
    in_main_thread: bool
    notation: Notation

    @classmethod
    def here(cls) -> Parent:
        """This process."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        return cls(tempfile.tempdir, in_main_thread, current_notation())


def begin_worker(parent: Parent, threads: int | None = None) -> None:
    """Prepares a worker process: it ends with its parent, and its temporary files go with the parent's.

    Its messages name arguments as its parent's do. Call it before the worker imports TensorFlow, which takes seconds.
    """
    end_with_parent()
    if parent.in_main_thread and sys.platform == "linux":
        # The kernel also ends a process that computes without releasing Python's lock. It does so when the thread that
        # started this process has ended, so that must be the parent's main thread.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    tempfile.tempdir = parent.temporary
    set_notation(parent.notation)
    if threads:
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            os.environ[name] = str(threads)


def end_with_parent() -> None:
    """Ends this process as soon as its parent has ended, even if the parent was killed.

    A killed process cannot stop its children, and a remaining child would hold locks.

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


@functools.cache
def end_with(pid: int) -> None:
    """Ends this process as soon as another one on this machine has ended; it need not be the parent."""

    def follow() -> None:
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "pidfd_open"):
                # Readable when the process has ended.
                multiprocessing.connection.wait([os.pidfd_open(pid)])
            else:
                while True:
                    os.kill(pid, 0)
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Redirects stderr, including messages from TensorFlow's C++ code, to a file inside the block.

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
    """Captures stderr inside the block, also from C++ code, and prints it only if the block raises."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stderr")
        try:
            with stderr_in(path):
                yield
        except BaseException:
            sys.stderr.write(printable(path.read_text(encoding="utf-8", errors="replace")))
            raise
