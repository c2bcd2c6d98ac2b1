"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pocketbert.errors import UserError

LOCK_NAME = ".lock"


def sha256(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file's bytes.

    Raises:
      UserError: there is no such file, or it cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read ({error.strerror}); check the path") from error


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a stream to a file beside `path` that takes its name when the block ends without error.

    Args:
      path: the file to make or to replace; its parents are made too.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes `content` beside `path`, then renames it into place."""
    with new_file(path) as stream:
        stream.write(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """`write_bytes` for UTF-8 text."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """`write_text` for indented JSON; NaN and infinities are refused, since JSON has none."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def check_absent(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raises `UserError` if `path` exists and `overwrite` was not asked for."""
    if Path(path).exists() and not overwrite:
        raise UserError(f"the output must not exist yet; received {path}; choose another or pass --overwrite")


@contextlib.contextmanager
def new_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary folder that takes the name `path` when the block ends without error.

    Args:
      path: the folder to make; its parents are made too.
      overwrite: replace an existing folder (only once the new one is complete).
    Raises:
      UserError: `path` exists and `overwrite` is False.
    """
    path = Path(path)
    check_absent(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        os.chmod(temporary, 0o755)
        yield temporary
        if path.exists():
            previous = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
            os.replace(path, previous / "old")
            os.replace(temporary, path)
            shutil.rmtree(previous)
        else:
            os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def locked_directory(path: str | os.PathLike[str]) -> Iterator[None]:
    """Makes a folder where there is none and has it for this process alone; one that stays empty goes again.

    Raises:
      UserError: another process has it.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK_NAME, "w") as lock:
        try:
            # The kernel gives it back when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"one process at a time may write in a folder; another has {folder}; wait for it, or choose another "
                "output"
            ) from None
        try:
            yield
        finally:
            if [file.name for file in folder.iterdir()] == [LOCK_NAME]:
                (folder / LOCK_NAME).unlink()
                folder.rmdir()
