"""Manifests for folders with stored files: names, sizes and digests. This module does not import TensorFlow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.data.readers.rows import shown
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256
from pocketbert_runtime.json_reading import read_json

MANIFEST_NAME = "manifest.json"
VOCABULARY_NAME = "vocab.txt"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file's name, size and SHA-256; the SHA-256 is None until the file is written."""

    name: str
    size_bytes: int
    sha256: str | None

    def __post_init__(self) -> None:
        problems = []
        if Path(self.name).name != self.name or "\0" in self.name:
            problems.append(f"the name must be a file name without a folder; received {shown(self.name)}")
        if self.size_bytes < 0:
            problems.append(f"the size must not be negative; received {self.size_bytes}")
        if self.sha256 is not None and not _DIGEST.fullmatch(self.sha256):
            problems.append(f"the SHA-256 must be 64 hexadecimal digits; received {shown(self.sha256)}")
        raise_if_any(problems, "file")


def read_signed(path: Path, form: str, version: int, *, absent: str, remedy: str) -> dict[str, Any]:
    """Reads a manifest, and checks its format and version. Raises `UserError` if it is missing or another one."""
    if not path.exists():
        raise UserError(absent.format(folder=path.parent))
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: the manifest must be a JSON object; received {type(content).__name__}; {remedy}")
    received = content.get("format"), content.get("version")
    if received != (form, version) or isinstance(received[1], bool):
        raise UserError(
            f"{path}: the manifest must be {form}, version {version}; received {shown(received[0])}, version "
            f"{shown(received[1])}; make the folder again"
        )
    return content


def size_problems(folder: Path, file: StoredFile, remedy: str) -> list[str]:
    """Lists a missing file or a wrong size."""
    try:
        received = (folder / file.name).stat().st_size
    except FileNotFoundError:
        return [f"{file.name} is missing; {remedy}"]
    if received != file.size_bytes:
        return [f"{file.name} must have {file.size_bytes} bytes; received {received}; {remedy}"]
    return []


def digest_problems(folder: Path, file: StoredFile, progress: Any, remedy: str) -> list[str]:
    """Lists a wrong SHA-256."""
    same = sha256(folder / file.name) == file.sha256
    progress.update(file.size_bytes)
    return [] if same else [f"{file.name} is damaged (its SHA-256 differs from the manifest); {remedy}"]
