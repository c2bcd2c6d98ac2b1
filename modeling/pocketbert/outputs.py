"""Folders as outputs: made or replaced whole, or held by one process that resumes in them after a kill.

Each holds a file `.pocketbert` that says what the folder is and which names in it are ours. Nothing else is ever
replaced or removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.files import (
    PARTIAL,
    check_path,
    exchange,
    held_folders,
    lock,
    made_parents,
    named_after,
    rename_new,
    write_json,
)
from pocketbert.json_reading import parse_json

MARKER = ".pocketbert"
_MARKER_ASIDE = f".{MARKER}.{PARTIAL}"
_OLD = "old"
# What the folders are that more than one command makes or expects.
MODEL_KIND, MODEL_GARDEN_KIND = "model directory", "Model Garden folder"
BUNDLE_KIND, SAVED_MODEL_KIND, RUN_KIND = "bundle", "SavedModel", "run"
_SHOWN = 5


def check_inputs(output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str] | None]) -> None:
    """Raises `UserError` if an input is the output, or in it, so that writing the output could destroy it.

    Args:
      output: what is written.
      inputs: what is read; None and names of nothing are passed over.
    """
    place = Path(os.path.realpath(output))
    for path in inputs:
        if path is None or not os.path.lexists(path):
            continue
        found = Path(os.path.realpath(path))
        if place == found or place in found.parents:
            raise UserError(
                f"an input must not be in the output; received {path} and the output {output}; choose another output"
            )


def check_apart(outputs: Sequence[str | os.PathLike[str]]) -> None:
    """Raises `UserError` if one of the outputs is another, or in it."""
    for output, other in itertools.permutations(outputs, 2):
        place, found = Path(os.path.realpath(output)), Path(os.path.realpath(other))
        if place == found or place in found.parents:
            raise UserError(f"outputs must not lie in one another; received {output} and {other}; choose another")


def check_directory(path: str | os.PathLike[str], kind: str, *, overwrite: bool) -> None:
    """Raises `UserError` if `new_directory` with the same arguments would refuse.

    Args:
      path: the folder to make.
      kind: what it will be.
      overwrite: replace a folder of this kind.
    """
    check_path(path)
    path = Path(path)
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"the output must be a folder; {path} is a file; choose another")
    if not overwrite:
        raise UserError(f"the output must not exist yet; received {path}; choose another or pass --overwrite")
    found = os.listdir(path)
    marker = read_marker(path)
    if found and (marker is None or marker["kind"] != kind):
        held = f"a folder that holds a {marker['kind']}" if marker else f"another folder, with {_some(found)}"
        raise UserError(
            f"--overwrite replaces only what PocketBERT made: the output must be a {kind}; {path} is {held}; choose "
            "another output"
        )
    if marker is not None:
        check_no_foreign(path, marker["files"])


def check_no_foreign(folder: Path, names: Collection[str]) -> None:
    """Raises `UserError` if a folder holds anything but the marker and these names."""
    foreign = {name for name in os.listdir(folder) if not _is_ours(name, names)}
    if foreign:
        raise UserError(
            f"--overwrite replaces only what PocketBERT wrote; {folder} also holds {_some(foreign)}; move it away, or "
            "choose another output"
        )


@contextlib.contextmanager
def new_directory(path: str | os.PathLike[str], kind: str, *, overwrite: bool = False) -> Iterator[Path]:
    """Yields a folder beside `path` that takes its name when the block ends without error.

    Args:
      path: the folder to make; its parents are made too.
      kind: what it is, for the marker.
      overwrite: replace a folder of this kind, once the new one is complete.
    Raises:
      UserError: `path` exists and `overwrite` is False, it holds something else, or another process makes it.
    """
    check_path(path)
    target = Path(os.path.realpath(path))
    aside = named_after(target, PARTIAL)
    with made_parents(target), _taken(aside, path):
        try:
            recover(target)
            check_directory(path, kind, overwrite=overwrite)
            for name in os.listdir(aside):
                remove(aside / name)
            yield aside
            place_directory(aside, target, kind, overwrite=overwrite)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            recover(target)
            raise


def place_directory(source: Path, target: Path, kind: str, *, overwrite: bool) -> None:
    """Marks a complete folder and gives it its name.

    Args:
      source: the folder; it is gone afterwards, or, if it replaced another, holds or held that.
      target: its name.
      kind: what it is.
      overwrite: replace a folder of this kind.
    Raises:
      UserError: as for `new_directory`.
    """
    write_json(source / MARKER, {"kind": kind, "files": sorted(set(os.listdir(source)) - {MARKER})})
    if not os.path.lexists(target):
        rename_new(source, target)
        return
    # Once more: it may have been made or changed meanwhile.
    check_directory(target, kind, overwrite=overwrite)
    with _taken(target, target):
        if exchange(source, target):
            # What this process still holds, so that no other one begins there.
            shutil.rmtree(source)
            return
        os.replace(target, named_after(target, _OLD))
        rename_new(source, target)
        shutil.rmtree(named_after(target, _OLD))


def recover(path: Path) -> None:
    """Ends what a process began that was killed while it replaced a folder without `exchange`."""
    old = named_after(path, _OLD)
    if not old.is_dir():
        return
    if path.exists():
        shutil.rmtree(old)
    else:
        rename_new(old, path)


@contextlib.contextmanager
def held_directory(path: str | os.PathLike[str], kind: str, names: Collection[str] | None = None) -> Iterator[Path]:
    """Makes a folder where there is none and has it for this process alone; one that stays empty goes again.

    Args:
      path: the folder: new, empty, or of this kind. Its parents are made too.
      kind: what it is, for the marker.
      names: what may be in it, at the top; None for anything.
    Yields:
      The folder.
    Raises:
      UserError: the folder holds something else, or another process has it.
    """
    check_held(path, kind)
    # What a killed `remove_directory` left.
    leftover = named_after(Path(os.path.realpath(path)), PARTIAL)
    if leftover.is_dir():
        with _taken(leftover, path):
            shutil.rmtree(leftover)
    folder = Path(path)
    with made_parents(folder), _taken(Path(os.path.realpath(path)), path):
        check_held(path, kind)
        with contextlib.suppress(FileNotFoundError):
            (folder / _MARKER_ASIDE).unlink()
        try:
            if read_marker(folder) is None:
                write_json(folder / MARKER, {"kind": kind, "files": sorted(names or [])})
            yield folder
        finally:
            with contextlib.suppress(FileNotFoundError):
                if set(os.listdir(folder)) <= {MARKER}:
                    (folder / MARKER).unlink(missing_ok=True)
                    folder.rmdir()


def is_begun(path: Path) -> bool:
    """Whether a process that was killed left a folder of `held_directory`, or a part of it."""
    return path.exists() or named_after(path, PARTIAL).exists()


def check_held(path: str | os.PathLike[str], kind: str) -> None:
    """Raises `UserError` if a folder is there that holds anything but `kind`."""
    check_path(path)
    folder = Path(path)
    if not folder.exists():
        return
    held = _some({*os.listdir(folder)} - {_MARKER_ASIDE}) if folder.is_dir() else "is a file"
    marker = read_marker(folder) if folder.is_dir() else None
    if held and (marker is None or marker["kind"] != kind):
        raise UserError(
            f"the output must be a new folder or one that holds a {kind}; received {folder}, which holds something "
            f"else ({held}); choose another"
        )


def remove_directory(folder: Path) -> None:
    """Removes a folder that this process holds; killed meanwhile, it is no longer there by its name."""
    folder = Path(os.path.realpath(folder))
    aside = named_after(folder, PARTIAL)
    rename_new(folder, aside)
    shutil.rmtree(aside)


def read_marker(folder: Path) -> dict[str, Any] | None:
    """The folder's marker; None where there is none, or none of ours."""
    try:
        content = parse_json((folder / MARKER).read_bytes(), folder / MARKER)
    except (OSError, UserError):
        return None
    ours = isinstance(content, dict) and isinstance(content.get("kind"), str) and isinstance(content.get("files"), list)
    return content if ours else None


@contextlib.contextmanager
def _taken(folder: Path, output: str | os.PathLike[str]) -> Iterator[None]:
    """A folder, without links in its path, for this process alone, made where there is none."""
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
            # Another process has just renamed or removed it.
            continue
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            if not lock(descriptor, folder, output):
                continue
            found = os.fstat(descriptor)
            held_folders[folder] = found.st_dev, found.st_ino
            stack.callback(held_folders.pop, folder)
            yield
            return


def _is_ours(name: str, names: Collection[str]) -> bool:
    return name in (MARKER, _MARKER_ASIDE) or name in names or any(name == f".{own}.{PARTIAL}" for own in names)


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def remove(path: Path) -> None:
    """Removes a file, a link or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
