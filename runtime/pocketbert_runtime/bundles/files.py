"""A bundle's files: in a folder, or in a zip file, whose members are read into memory."""

from __future__ import annotations

import abc
import hashlib
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pocketbert_runtime.digests import sha256
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.json_reading import read_bytes

BUNDLE_FILE = "bundle.json"
# What the module `zipfile` raises for damaged, encrypted and unknown archives.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError)


class BundleFiles(abc.ABC):
    """The files of a bundle.

    Args:
      path: the folder or the zip file.
    Attributes:
      path: see the argument.
      held: contents in memory by name; None for a folder.
    """

    held: Mapping[str, bytes] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    @abc.abstractmethod
    def size(self, name: str) -> int | None:
        """Returns a file's size in bytes; None if it is missing."""

    @abc.abstractmethod
    def sha256(self, name: str) -> str:
        """Returns a file's SHA-256 in hexadecimal digits; raises a `UserError` if it cannot be read."""

    @abc.abstractmethod
    def read(self, name: str, most_bytes: int) -> bytes:
        """Returns a file's content; raises a `UserError` if it cannot be read, or is larger."""

    def keep(self, names: Iterable[str]) -> None:  # noqa: B027
        """Keeps only these files in memory; a folder keeps none."""

    def model(self, name: str) -> dict[str, str | bytes]:
        """Returns the arguments of a LiteRT interpreter for a file."""
        return {"model_path": str(self.path / name)} if self.held is None else {"model_content": self.held[name]}


class FolderFiles(BundleFiles):
    """Files in a folder. LiteRT maps them into memory, so that several interpreters share their pages."""

    def size(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def sha256(self, name: str) -> str:
        return sha256(self.path / name)

    def read(self, name: str, most_bytes: int) -> bytes:
        return read_bytes(self.path / name, most_bytes=most_bytes)


class ZipFiles(BundleFiles):
    """Members of a zip file: its root's, or those of the one folder with `bundle.json`.

    Raises:
      UserError: the file is damaged, a name is outside the folder or repeated, or no folder or several have a
        `bundle.json`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.held: dict[str, bytes] = {}
        try:
            with zipfile.ZipFile(path) as archive:
                members = [info for info in archive.infolist() if not info.is_dir()]
        except _ZIP_ERRORS as error:
            raise self._damaged(error) from error
        names = [info.filename for info in members]
        if outside := [name for name in names if not _is_inside(name)]:
            raise UserError(
                f"{path}: names must stay in the bundle's folder; received {outside[0]!r:.120}; pack the folder again"
            )
        folders = [name[: -len(BUNDLE_FILE)] for name in names if name.rpartition("/")[2] == BUNDLE_FILE]
        if len(folders) != 1:
            raise UserError(
                f"{path} must have one {BUNDLE_FILE}, written by pocketbert export; it has {len(folders)}; pack the "
                "bundle's folder alone"
            )
        self._folder = folders[0]
        self._members = {info.filename[len(self._folder) :]: info for info in members if self._is_mine(info.filename)}
        if len(self._members) != sum(map(self._is_mine, names)):
            raise UserError(f"{path}: names must differ; received a name twice; pack the folder again")

    def size(self, name: str) -> int | None:
        return self._members[name].file_size if name in self._members else None

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self._content(name)).hexdigest()

    def read(self, name: str, most_bytes: int) -> bytes:
        size = self.size(name)
        if size is None or size > most_bytes:
            raise UserError(f"{self.path}: {name} must have at most {most_bytes:,} bytes; it has {size or 0:,}")
        return self._content(name)

    def keep(self, names: Iterable[str]) -> None:
        self.held = {name: self._content(name) for name in names}

    def _is_mine(self, name: str) -> bool:
        return name.startswith(self._folder) and "/" not in name[len(self._folder) :]

    def _content(self, name: str) -> bytes:
        if name not in self.held:
            try:
                with zipfile.ZipFile(self.path) as archive:
                    # Kept, since a digest comes before each use.
                    self.held[name] = archive.read(self._members[name])
            except _ZIP_ERRORS as error:
                raise self._damaged(error) from error
        return self.held[name]

    def _damaged(self, error: Exception) -> UserError:
        reason = " ".join(str(error).split()) or type(error).__name__
        return UserError(f"{self.path} must be a complete zip file; received: {reason}; copy it again")


def folder_files(path: Path, *, or_zip: str = "") -> FolderFiles:
    """Opens a folder; raises a `UserError` if it has no `bundle.json`. `or_zip` adds another form to the message."""
    if not (path / BUNDLE_FILE).is_file():
        raise UserError(
            f"a bundle must be a folder with {BUNDLE_FILE}, written by pocketbert export{or_zip}; received {path}"
        )
    return FolderFiles(path)


def bundle_files(path: Path) -> BundleFiles:
    """Opens a folder or a zip file; raises a `UserError` if it is neither, or has no `bundle.json`."""
    return ZipFiles(path) if path.is_file() else folder_files(path, or_zip=", or a zip file of one")


def _is_inside(name: str) -> bool:
    """Whether a member's name stays in the archive's folder on every system."""
    return not (name.startswith("/") or re.search(r"[\\:]", name) or ".." in name.split("/"))
