"""The teacher of a distillation: a model directory, or a cache of the teacher's targets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pocketbert.checkpoints.directory import DirectoryDescription, describe_directory
from pocketbert.configs import TaskConfig
from pocketbert.distillation.teacher_cache_identity import cached_manifests
from pocketbert.errors import UserError
from pocketbert.label_names import are_placeholders, label_positions
from pocketbert.training.initialization import vocabulary_of, with_options


@dataclass(frozen=True)
class CachedTeacher:
    """Cached targets that replace a teacher.

    Attributes:
      folder: folder of `pocketbert cache-teacher`.
      teacher: model directory of the teacher. If given, its files must match those that the cache was made from.
    """

    folder: Path
    teacher: Path | None = None

    def __init__(self, folder: str | os.PathLike[str], teacher: str | os.PathLike[str] | None = None) -> None:
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "teacher", None if teacher is None else Path(teacher))


def describe_teacher(
    directory: Path | None, cache: Path | None, reads: Callable[[str, DirectoryDescription], bool]
) -> DirectoryDescription | None:
    """Describes a teacher from its model directory or, without reading weights, from a cache of its targets.

    Args:
      directory: model directory of the teacher, or None. Next to a cache, only its vocabulary is used.
      cache: folder of the teacher cache, or None; it knows one task at most.
      reads: tells whether the run has a stage with a name that reads a teacher.

    Raises:
      UserError: the directory is not a model directory, or the cache is empty or damaged.
    """
    if cache is None:
        if directory is None:
            return None
        description = describe_directory(directory)
        return dataclasses.replace(description, vocabulary=with_options(description.vocabulary))
    vocabulary = None if directory is None else vocabulary_of(directory)
    described = {
        name: DirectoryDescription(
            config=manifest.teacher_config,
            tasks=(manifest.teacher_task,) if manifest.teacher_task else (),
            vocabulary=vocabulary or manifest.tokenizer_files(cache / name),
        )
        for name, manifest in cached_manifests(cache).items()
    }
    if not described:
        raise UserError(f"{cache}: a teacher cache has one folder per stage, from pocketbert cache-teacher; found none")
    # The folder may also contain stages of other teachers, such as the encoder of a general distillation.
    readable = [teacher for name, teacher in described.items() if reads(name, teacher)]
    return [*readable, *described.values()][0]


def same_labels(teacher: TaskConfig | None, student: TaskConfig | None, *, reorder: bool = False) -> TaskConfig | None:
    """The teacher's task with our labels, if its labels are placeholders or the same names.

    Args:
      teacher: the teacher's task.
      student: task of the student.
      reorder: whether the same names may have another order, because the loaded teacher's logits are reordered.
    """
    if teacher is None or student is None or len(teacher.labels) != len(student.labels):
        return teacher
    positions = label_positions(student.labels, teacher.labels)
    same = positions is not None and (reorder or positions == list(range(len(positions))))
    return dataclasses.replace(teacher, labels=student.labels) if same or are_placeholders(teacher.labels) else teacher
