"""Writes files atomically: readers never see a partial file, and no existing file is lost.

An unfinished output is `.NAME.partial` in the same folder. The writing process holds a lock; the kernel releases it
when the process ends in any way. The next process overwrites a killed one's remains.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_runtime.digests import sha256 as sha256

PARTIAL = "partial"
_MOST_NAME_BYTES = 255
_AT_FDCWD, _NO_REPLACE, _EXCHANGE = -100, 1, 2
# Folders locked by this process: path → device and inode.
held_folders: dict[Path, tuple[int, int]] = {}


def digest_files(digests: Mapping[str, str]) -> str:
    """Returns a SHA-256 over a set of files.

    Args:
      digests: file name → SHA-256 of its content.
    """
    listing = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(listing.encode()).hexdigest()


def stamp(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Returns a file's size, modification time and change time; raises a `UserError` if there is no such file.

    With another stamp, the file may have changed.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read ({error.strerror}); check the path") from error
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def named_after(path: Path, suffix: str, *, hidden: bool = True) -> Path:
    """Returns `.NAME.SUFFIX`, or `NAME.SUFFIX` if not `hidden`, in the folder of `path`.

    If this is too long, a digest replaces the end of NAME.
    """
    name, dot = path.name, "." * hidden
    room = _MOST_NAME_BYTES - len(f"{dot}.{suffix}")
    encoded = os.fsencode(name)
    if len(encoded) > room:
        name = encoded[: room - 17].decode("utf-8", "ignore") + "-" + hashlib.sha256(encoded).hexdigest()[:16]
    return path.with_name(f"{dot}{name}.{suffix}")


@contextlib.contextmanager
def made_parents(path: Path) -> Iterator[None]:
    """Creates the parent folders of `path`; after an error, removes the new ones if empty.

    Raises:
      UserError: a parent is a file or cannot be created, or a folder locked by this process has disappeared.
    """
    above = Path(os.path.realpath(path)).parents
    for folder, identity in list(held_folders.items()):
        if folder in above and _identity(folder) != identity:
            raise UserError(
                f"a folder must not move while it is written; {folder} was removed or replaced; start again"
            )
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"the folder {folder} cannot be made ({error.strerror}); choose another output") from error
    try:
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def lock(descriptor: int, path: Path, output: str | os.PathLike[str]) -> bool:
    """Locks an open file or folder; raises a `UserError` if another process holds the lock.

    Returns False if `path` is no longer this file or folder; open it again.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"one process at a time may write an output; another has {output}; wait for it, or choose another output"
        ) from None
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino) == _identity(path)


@contextlib.contextmanager
def locked_folder(folder: Path, output: str | os.PathLike[str]) -> Iterator[None]:
    """Locks a folder for this process, by a path without links; creates it if missing."""
    while True:
        try:
            os.mkdir(folder)
        except FileExistsError:
            pass
        except OSError as error:
            raise UserError(f"{output} cannot be written ({error.strerror}); choose another output") from error
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            # Another process has just renamed or removed the folder.
            continue
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            if not lock(descriptor, folder, output):
                continue
            status = os.fstat(descriptor)
            held_folders[folder] = status.st_dev, status.st_ino
            stack.callback(held_folders.pop, folder)
            yield
            return


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Yields a stream to a temporary file and renames it to `path` if the block succeeds.

    Args:
      path: the file to create or replace; parents are created.
      overwrite: replace an existing file.
    Raises:
      UserError: another process writes the file, or it exists and `overwrite` is False.
    """
    path = Path(path)
    aside = named_after(path, PARTIAL)
    with made_parents(path):
        while True:
            try:
                stream = open(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "wb")  # noqa: SIM115
            except OSError as error:
                raise UserError(f"{path} cannot be written ({error.strerror}); choose another output") from error
            with contextlib.ExitStack() as stack:
                stack.enter_context(stream)
                if lock(stream.fileno(), aside, path):
                    stack.pop_all()
                    break
        try:
            with stream:
                try:
                    stream.truncate(0)
                    yield stream
                    stream.flush()
                    os.fsync(stream.fileno())
                    if overwrite:
                        os.replace(aside, path)
                    else:
                        rename_new(aside, path)
                except BaseException:
                    # While the lock is held.
                    aside.unlink(missing_ok=True)
                    raise
        except OSError as error:
            error.filename = error.filename or str(path)
            raise


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes `content` to a temporary file and renames it to `path`."""
    with new_file(path) as stream:
        stream.write(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Writes UTF-8 text; see `write_bytes`."""
    write_bytes(path, content.encode("utf-8"))


def write_tensors(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Writes a temporary safetensors file, in a folder locked by this process, and renames it to `path`."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    aside = named_after(path, PARTIAL)
    # safetensors ignores the umask and creates files that only the owner can read.
    with open(aside, "wb") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
    try:
        save_file(dict(arrays), aside, metadata=dict(metadata))
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    os.chmod(aside, mode)
    with open(aside, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(aside, path)


def write_json(path: str | os.PathLike[str], content: Any, *, overwrite: bool = True) -> None:
    """Writes indented JSON; see `new_file`. JSON has no NaN and infinity, so these raise a ValueError."""
    with new_file(path, overwrite=overwrite) as stream:
        stream.write((json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8"))


def check_path(path: str | os.PathLike[str]) -> None:
    """Raises `UserError` if no output can be written to this path."""
    path = Path(path)
    name = os.path.basename(os.path.abspath(path))
    if len(os.fsencode(name)) > _MOST_NAME_BYTES:
        raise UserError(
            f"a name has at most {_MOST_NAME_BYTES} bytes; the output's has {len(os.fsencode(name))} "
            f"({name[:20]}…); choose a shorter one"
        )
    if path.is_symlink() and not path.exists():
        raise UserError(
            f"the output must not be a link to nothing; {path} points to {os.readlink(path)}, which does not exist; "
            "remove the link, or choose another output"
        )
    above = next(folder for folder in Path(os.path.abspath(path)).parents if os.path.lexists(folder))
    if not above.is_dir():
        raise UserError(f"the output must be in a folder; received {path}, and {above} is a file; choose another")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"the output must be in a folder that you may write; {above} is read-only; choose another")
    try:
        # Without a name, so that nothing is left behind. Permissions do not tell everything: /proc takes no file.
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); choose another output") from error


def check_different(name: str, paths: Iterable[str | os.PathLike[str]]) -> None:
    """Raises `UserError` if two inputs called `name` are the same file or folder."""
    places: dict[str, str | os.PathLike[str]] = {}
    for path in paths:
        real_path = os.path.realpath(path)
        if real_path in places:
            raise UserError(f"{name} must be different; {places[real_path]} and {path} are the same; name each once")
        places[real_path] = path


def check_absent(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raises `UserError` if a file cannot be written, or exists and `overwrite` is False."""
    check_path(path)
    if not os.path.exists(path):
        return
    if not stat.S_ISREG(os.stat(path).st_mode):
        kind = "a folder" if os.path.isdir(path) else "no plain file"
        raise UserError(f"the output must be a file; {path} is {kind}; choose another")
    aside = named_after(Path(path), PARTIAL)
    if not os.path.getsize(path) and aside.is_file() and aside.stat().st_size:
        # A process was killed in `rename_new`, on a system that cannot rename to new names only.
        os.unlink(path)
        return
    if not overwrite:
        raise UserError(_exists(path))


def _exists(path: str | os.PathLike[str]) -> str:
    return f"the output must not exist yet; received {path}; choose another or pass {argument('overwrite', True)}"


def rename_new(source: Path, target: Path) -> None:
    """Renames a file or folder to a new name; raises a `UserError` if the target exists."""
    try:
        if not _rename(source, target, _NO_REPLACE):
            # Create the target first, since a plain rename replaces files and empty folders.
            if source.is_dir():
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL))
            os.replace(source, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise UserError(_exists(target)) from None
        raise


def exchange(first: Path, second: Path) -> bool:
    """Exchanges two names atomically; False if the system cannot."""
    return _rename(first, second, _EXCHANGE)


def _rename(source: Path, target: Path, flag: int) -> bool:
    """Calls Linux's renameat2; False if the system or file system lacks it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    sys.audit("os.rename", source, target, -1, -1)
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))
