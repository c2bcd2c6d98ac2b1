"""What is known of a teacher before a run: from its directory or, where that is not even read, from its store."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.distillation.teacher_cache_identity import cached_manifests
from pocketbert.errors import UserError
from pocketbert.training.initialization import vocabulary_of
from pocketbert.training.vocabulary import Vocabulary

# Names of transformers for labels that nobody named.
_NAMELESS = re.compile(r"LABEL_\d+")


@dataclass(frozen=True, kw_only=True)
class TeacherDescription:
    """What is known of a teacher; all of it None where there is none.

    Attributes:
      config: its architecture.
      task: what its first head was trained for; None for a bare encoder.
      heads: the kinds of all of its heads; None of a store's.
      vocabulary: its own, or None where its directory has none.
    """

    config: EncoderConfig | None = None
    task: TaskConfig | None = None
    heads: tuple[str, ...] | None = None
    vocabulary: Vocabulary | None = None


def describe_teacher(
    directory: Path | None, store: Path | None, reads: Callable[[str, TeacherDescription], bool]
) -> TeacherDescription:
    """The teacher as its directory has it or, not even reading the weights, as a store does.

    Args:
      directory: the teacher's, or None. With a store its vocabulary counts, which may not be the stored one any more.
      store: the folder of stores, or None.
      reads: says whether the run has a stage of this name that reads this teacher.

    Raises:
      UserError: the directory is no model directory, or the store holds nothing or is damaged.
    """
    if store is None and directory is None:
        return TeacherDescription()
    if store is None:
        assert directory is not None
        found = read_directory(directory)
        return TeacherDescription(
            config=found.config,
            task=found.tasks[0] if found.tasks else None,
            heads=tuple(task.kind for task in found.tasks),
            vocabulary=vocabulary_of(directory),
        )
    own = None if directory is None else vocabulary_of(directory)
    described = {
        name: TeacherDescription(
            config=manifest.teacher_config,
            task=manifest.teacher_task,
            vocabulary=own
            or Vocabulary(
                path=store / name / manifest.vocabulary.name, config=TokenizerConfig(lowercase=manifest.lowercase)
            ),
        )
        for name, manifest in cached_manifests(store).items()
    }
    if not described:
        raise UserError(f"{store}: the store must hold a folder a stage, from pocketbert cache-teacher; there is none")
    # Stages of other teachers may be in the same folder: general distillation has an encoder without a head.
    ours = [teacher for name, teacher in described.items() if reads(name, teacher)]
    return [*ours, *described.values()][0]


def same_labels(theirs: TaskConfig | None, ours: TaskConfig | None) -> TaskConfig | None:
    """The teacher's task with our labels, where its own say nothing or are the same in other letters."""
    if theirs is None or ours is None or len(theirs.labels) != len(ours.labels):
        return theirs
    same = [label.casefold() for label in theirs.labels] == [label.casefold() for label in ours.labels]
    return dataclasses.replace(theirs, labels=ours.labels) if same or are_nameless(theirs) else theirs


def are_nameless(task: TaskConfig) -> bool:
    """Whether a task has labels that nobody named."""
    return bool(task.labels) and all(map(_NAMELESS.fullmatch, task.labels))
