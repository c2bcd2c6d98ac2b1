"""Temporary folders that end with their process: at its end, or after a kill, when the next one starts.

The process holds a lock on its folder; the kernel releases it when the process ends in any way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX, _MARKER = "pocketbert-", ".pocketbert-temporary"
# Another process may remove the folder before it is locked; some file systems have no locks.
_ATTEMPTS = 5
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")


@contextlib.contextmanager
def temporary_folder(root: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yields a new folder, removed at the end; first removes killed processes' folders.

    Args:
      root: the folder to create it in; None for the system's temporary folder.
    """
    path = Path(root or tempfile.gettempdir())
    _remove_abandoned(path)
    with contextlib.ExitStack() as stack:
        for _ in range(_ATTEMPTS):
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=path))
            stack.callback(_remove, folder)
            with contextlib.suppress(OSError):
                (folder / _MARKER).touch()
                stack.enter_context(_locked(folder))
                break
        yield folder


@contextlib.contextmanager
def temporary_files_go_with_the_run() -> Iterator[None]:
    """Makes `tempfile` create everything in one temporary folder inside the block."""
    with contextlib.ExitStack() as stack:
        # A command without temporary files needs no place for them.
        with contextlib.suppress(OSError):
            folder = stack.enter_context(temporary_folder())
            stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
            tempfile.tempdir = str(folder)
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder; raises an `OSError` if another process holds the lock, or the folder is gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            raise FileNotFoundError(folder)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(root: Path) -> None:
    """Removes the folders of this user's killed processes."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if _NAME.fullmatch(entry.name)]
    for name in names:
        folder = root / name
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid():
                continue
            with _locked(folder):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Removes a folder with the marker, or an empty one: its process was killed before it had a marker."""
    with contextlib.suppress(OSError):
        if (folder / _MARKER).exists():
            # The marker is the last to go, since this process may be killed, too.
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name != _MARKER:
                    path.unlink()
            (folder / _MARKER).unlink()
        folder.rmdir()
