"""Output folders: created or replaced atomically, or locked by one process and resumed after a kill.

Each folder has a file `.pocketbert` with its kind and our files' names. We replace or remove nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.ahead import AHEAD, is_ahead, write_ahead
from pocketbert.errors import UserError
from pocketbert.files import (
    PARTIAL,
    check_path,
    exchange,
    locked_folder,
    made_parents,
    named_after,
    rename_new,
    write_json,
)
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import parse_json

MARKER = ".pocketbert"
_MARKER_ASIDE = f".{MARKER}.{PARTIAL}"
_OLD = "old"
# Kinds of folders that several commands use.
MODEL_KIND, MODEL_GARDEN_KIND = "model directory", "Model Garden folder"
BUNDLE_KIND, SAVED_MODEL_KIND, RUN_KIND = "bundle", "SavedModel", "run"
MEDIAPIPE_KIND, TRY_KIND = "folder of MediaPipe files", "page to try a bundle"
_SHOWN = 5


def check_inputs(output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str] | None]) -> None:
    """Raises `UserError` if an input is the output or inside it, since writing could destroy the input.

    Args:
      output: output path.
      inputs: input paths; None and missing paths are ignored.
    """
    output_path = Path(os.path.realpath(output))
    for path in inputs:
        if path is None or not os.path.lexists(path):
            continue
        input_path = Path(os.path.realpath(path))
        if output_path == input_path or output_path in input_path.parents:
            raise UserError(
                f"an input must not be in the output; received {path} and the output {output}; choose another output"
            )


def check_apart(outputs: Sequence[str | os.PathLike[str]]) -> None:
    """Raises `UserError` if two outputs are equal, or one is inside another."""
    for output, other in itertools.permutations(outputs, 2):
        output_path, other_path = Path(os.path.realpath(output)), Path(os.path.realpath(other))
        if output_path == other_path or output_path in other_path.parents:
            raise UserError(f"outputs must not lie in one another; received {output} and {other}; choose another")


def check_directory(
    path: str | os.PathLike[str], kind: str, *, overwrite: bool, main: str | os.PathLike[str] | None = None
) -> None:
    """Raises `UserError` if `new_directory` with the same arguments would refuse.

    Args:
      path: the folder to create.
      kind: the folder's kind.
      overwrite: replace a folder of this kind.
      main: the command's main output, if this is another one; see `together`.
    """
    check_path(path)
    path = Path(path)
    aside = named_after(Path(os.path.realpath(path)), PARTIAL)
    if (aside / MARKER).exists():
        # A process was killed in `rename_new`, on a system that cannot rename to new names only.
        with contextlib.suppress(OSError):
            path.rmdir()
    _check_directory(path, kind, overwrite=overwrite, main=main)


def _check_directory(path: Path, kind: str, *, overwrite: bool, main: str | os.PathLike[str] | None) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"the output must be a folder; {path} is a file; choose another")
    if not overwrite and not is_ahead(path, main):
        raise UserError(
            f"the output must not exist yet; received {path}; choose another or pass {argument('overwrite', True)}"
        )
    entries = os.listdir(path)
    marker = read_marker(path)
    if entries and (marker is None or marker["kind"] != kind):
        held = f"a folder that holds a {marker['kind']}" if marker else f"another folder, with {_some(entries)}"
        raise UserError(
            f"PocketBERT replaces only what it made: the output must be a {kind}; {path} is {held}; choose "
            "another output"
        )
    if marker is not None:
        check_no_foreign(path, marker["files"])


def check_together(kinds: Mapping[str, str], *, overwrite: bool) -> None:
    """Raises `UserError` if one command's outputs, made `together`, would be refused."""
    main, *others = kinds
    # Finishes the work of a killed process, before one of them is refused.
    for path in others:
        is_ahead(Path(path), main)
    for path in kinds:
        check_directory(path, kinds[path], overwrite=overwrite, main=None if path == main else main)


def beside(output: str | os.PathLike[str], suffix: str) -> Path:
    """Returns the folder for a second output: the main one's path with `-SUFFIX` at the end."""
    return Path(f"{os.path.normpath(output)}-{suffix}")


def check_no_foreign(folder: Path, names: Collection[str]) -> None:
    """Raises `UserError` if a folder holds anything except the marker and these names."""
    allowed = {MARKER, _MARKER_ASIDE, AHEAD, *names, *(f".{name}.{PARTIAL}" for name in names)}
    if foreign := {*os.listdir(folder)} - allowed:
        raise UserError(
            f"PocketBERT replaces only what it wrote; {folder} also holds {_some(foreign)}; move it away, or choose "
            "another output"
        )


class Together:
    """A command's output folders that get their names together; see `together`.

    Attributes:
      main: the first folder; None before there is one.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.main: Path | None = None
        self._stack = stack
        self._folders: list[tuple[Path, Path, str, bool]] = []

    def add(self, source: Path, target: Path, kind: str, overwrite: bool, stack: contextlib.ExitStack) -> None:
        """Adds a complete folder.

        Args:
          source: the folder.
          target: its new name.
          kind: its kind.
          overwrite: replace a folder of this kind.
          stack: exits once all folders have their names.
        """
        self.main = self.main or target
        self._folders.append((source, target, kind, overwrite))
        self._stack.push(stack)

    def place(self) -> None:
        """Renames all folders, the main one last. After an error, none of them has its new name."""
        if not self._folders:
            return
        (first, main, *_), *others = self._folders
        status = os.stat(first)
        for source, target, kind, _ in self._folders:
            if target != main:
                write_ahead(source, target, main, status)
            _mark(source, kind)
        undo: list[Callable[[], object]] = []
        replaced = []
        try:
            for source, target, kind, overwrite in [*others, self._folders[0]]:
                back, old = _place(self._stack, source, target, kind, overwrite=overwrite, main=main)
                undo.append(back)
                replaced += [old] if old else []
        except BaseException:
            for back in reversed(undo):
                back()
            raise
        for _, target, *_ in others:
            (target / AHEAD).unlink()
        # The stack holds their locks, so no other process starts there.
        for old in replaced:
            shutil.rmtree(old)


@contextlib.contextmanager
def together() -> Iterator[Together]:
    """Yields a group for `new_directory`: all its folders get their names when the block succeeds.

    The first folder is the main output, and gets its name last. If the process is killed in between, the others'
    markers say that they are ahead of it: `new_directory` replaces them for the same main output, and for no other.
    """
    with contextlib.ExitStack() as stack:
        group = Together(stack)
        yield group
        group.place()


@contextlib.contextmanager
def new_directory(
    path: str | os.PathLike[str], kind: str, *, overwrite: bool = False, group: Together | None = None
) -> Iterator[Path]:
    """Yields a temporary folder and renames it to `path` if the block succeeds.

    Args:
      path: the folder to create; parents are created.
      kind: the folder's kind, for the marker.
      overwrite: replace a folder of this kind when the new one is complete.
      group: rename it together with this group's other folders.
    Raises:
      UserError: `path` exists and `overwrite` is False, `path` holds something else, or another process writes it.
    """
    check_path(path)
    target = Path(os.path.realpath(path))
    aside = named_after(target, PARTIAL)

    def clean(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            shutil.rmtree(aside, ignore_errors=True)
            recover(target)

    with contextlib.ExitStack() as stack:
        group = group or stack.enter_context(together())
        with contextlib.ExitStack() as held:
            held.enter_context(made_parents(target))
            held.enter_context(locked_folder(aside, path))
            held.push(clean)
            recover(target)
            check_directory(path, kind, overwrite=overwrite, main=group.main)
            for name in os.listdir(aside):
                remove(aside / name)
            yield aside
            group.add(aside, target, kind, overwrite, held.pop_all())


def place_directory(source: Path, target: Path, kind: str, *, overwrite: bool) -> None:
    """Adds the marker to a complete folder and renames it.

    Args:
      source: the folder; removed afterwards, together with the content that it replaces.
      target: the new name.
      kind: the folder's kind.
      overwrite: replace a folder of this kind.
    Raises:
      UserError: see `new_directory`.
    """
    _mark(source, kind)
    with contextlib.ExitStack() as stack:
        _, old = _place(stack, source, target, kind, overwrite=overwrite, main=None)
        if old:
            shutil.rmtree(old)


def _mark(folder: Path, kind: str) -> None:
    names = set(os.listdir(folder)) - {MARKER, AHEAD}
    write_json(folder / MARKER, {"kind": kind, "files": sorted(names)})


def _place(
    stack: contextlib.ExitStack, source: Path, target: Path, kind: str, *, overwrite: bool, main: Path | None
) -> tuple[Callable[[], object], Path | None]:
    """Renames a complete folder; returns a function to undo it, and the replaced folder, to remove."""
    if not os.path.lexists(target):
        rename_new(source, target)
        return lambda: os.replace(target, source), None
    # Check again: the target may have been created or changed meanwhile.
    _check_directory(target, kind, overwrite=overwrite, main=main if main != target else None)
    stack.enter_context(locked_folder(target, target))
    if exchange(source, target):
        return lambda: exchange(source, target), source
    old = named_after(target, _OLD)
    os.replace(target, old)
    rename_new(source, target)

    def back() -> None:
        os.replace(target, source)
        os.replace(old, target)

    return back, old


def recover(path: Path) -> None:
    """Finishes for a process that was killed while it replaced a folder without `exchange`."""
    old = named_after(path, _OLD)
    if not old.is_dir():
        return
    if path.exists():
        shutil.rmtree(old)
    else:
        rename_new(old, path)


@contextlib.contextmanager
def held_directory(path: str | os.PathLike[str], kind: str, names: Collection[str] | None = None) -> Iterator[Path]:
    """Creates, locks and yields a folder for this process; removes it at the end if it is empty.

    Args:
      path: the folder: new, empty, or of this kind. Parents are created.
      kind: the folder's kind, for the marker.
      names: allowed names in the folder; None for any.
    Raises:
      UserError: the folder holds something else, or another process holds the lock.
    """
    check_held(path, kind)
    # A killed `remove_directory` left the rest.
    leftover = named_after(Path(os.path.realpath(path)), PARTIAL)
    if leftover.is_dir():
        with locked_folder(leftover, path):
            shutil.rmtree(leftover)
    folder = Path(path)
    with made_parents(folder), locked_folder(Path(os.path.realpath(path)), path):
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
    """Whether a killed process left a folder from `held_directory`, or a part of one."""
    return path.exists() or named_after(path, PARTIAL).exists()


def check_held(path: str | os.PathLike[str], kind: str) -> None:
    """Raises `UserError` if the folder exists and holds anything except `kind`."""
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
    """Removes a folder locked by this process. It loses its name first, in case of a kill."""
    folder = Path(os.path.realpath(folder))
    aside = named_after(folder, PARTIAL)
    rename_new(folder, aside)
    shutil.rmtree(aside)


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Reads a folder's marker; None if it is missing or invalid."""
    try:
        content = parse_json((folder / MARKER).read_bytes(), folder / MARKER)
    except (OSError, UserError):
        return None
    good = isinstance(content, dict) and isinstance(content.get("kind"), str) and isinstance(content.get("files"), list)
    return content if good else None


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:_SHOWN]) + (f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else "")


def remove(path: Path) -> None:
    """Removes a file, a link, or a folder and its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
