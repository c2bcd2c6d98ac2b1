"""Cached targets in place of a teacher."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CachedTeacher:
    """Cached targets that replace a teacher.

    Attributes:
      folder: folder from `pocketbert cache-teacher`.
      teacher: the teacher's model directory. If given, its files must match the cache's.
    """

    folder: Path
    teacher: Path | None = None

    def __init__(self, folder: str | os.PathLike[str], teacher: str | os.PathLike[str] | None = None) -> None:
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "teacher", None if teacher is None else Path(teacher))
