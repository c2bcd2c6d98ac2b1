"""The teacher of a distillation: a model directory, or a cache of the teacher's targets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import PRETRAINING_HEADS, EncoderConfig, TaskConfig
from pocketbert.distillation.teacher_cache_identity import cached_manifests, teacher_digest, tokenizer_digest
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.json_reading import parse_json
from pocketbert.label_names import are_placeholders, label_positions
from pocketbert.progress import log_info
from pocketbert.tokenizers.vocabulary import Vocabulary
from pocketbert.training.initialization import vocabulary_of
from pocketbert.training.kept_heads import reorder_head
from pocketbert.training.outcome_notes import flat_notes
from pocketbert.training.run_folder import TEACHER_FILE

if TYPE_CHECKING:
    from pocketbert.distillation.plan import DistillationPlan
    from pocketbert.model import Model


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


@dataclass(frozen=True, kw_only=True)
class TeacherDescription:
    """Facts about a teacher; all are None in a run without a teacher.

    Attributes:
      config: the architecture.
      task: task of the first head; None for a bare encoder.
      heads: kinds of all heads; None for a teacher cache.
      vocabulary: the vocabulary, or None if the model directory has none.
    """

    config: EncoderConfig | None = None
    task: TaskConfig | None = None
    heads: tuple[str, ...] | None = None
    vocabulary: Vocabulary | None = None


def describe_teacher(
    directory: Path | None, cache: Path | None, reads: Callable[[str, TeacherDescription], bool]
) -> TeacherDescription:
    """Describes a teacher from its model directory or, without reading weights, from a cache of its targets.

    Args:
      directory: model directory of the teacher, or None. Next to a cache, only its vocabulary is used.
      cache: folder of the teacher cache, or None.
      reads: tells whether the run has a stage with a name that reads a teacher.

    Raises:
      UserError: the directory is not a model directory, or the cache is empty or damaged.
    """
    if cache is None and directory is None:
        return TeacherDescription()
    if cache is None:
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
            vocabulary=own or manifest.tokenizer_files(cache / name),
        )
        for name, manifest in cached_manifests(cache).items()
    }
    if not described:
        raise UserError(f"{cache}: a teacher cache has one folder per stage, from pocketbert cache-teacher; found none")
    # The folder may also contain stages of other teachers, such as the encoder of a general distillation.
    ours = [teacher for name, teacher in described.items() if reads(name, teacher)]
    return [*ours, *described.values()][0]


def same_labels(theirs: TaskConfig | None, ours: TaskConfig | None, *, reorder: bool = False) -> TaskConfig | None:
    """The teacher's task with our labels, if its labels are placeholders or the same names.

    Args:
      theirs: the teacher's task.
      ours: task of the student.
      reorder: whether the same names may have another order, because `load_teacher` reorders the logits.
    """
    if theirs is None or ours is None or len(theirs.labels) != len(ours.labels):
        return theirs
    positions = label_positions(ours.labels, theirs.labels)
    same = positions is not None and (reorder or positions == list(range(len(positions))))
    return dataclasses.replace(theirs, labels=ours.labels) if same or are_placeholders(theirs.labels) else theirs


def load_teacher(plan: DistillationPlan) -> Model:
    """Loads the live teacher of a plan; its logits have the order of the student's labels."""
    from pocketbert.model import from_pretrained

    assert plan.teacher_directory is not None
    log_info(f"loading the teacher, {plan.teacher_directory}")
    teacher, task = from_pretrained(plan.teacher_directory), plan.spec.task
    ours = () if task is None else task.labels
    theirs = teacher.task
    if theirs is not None and task is not None and theirs.kind == task.kind and theirs.labels != ours:
        if label_positions(ours, theirs.labels) is not None:
            reorder_head(teacher, ours)
    return teacher


def is_scorable(plan: DistillationPlan) -> bool:
    """Whether the dev split can score the teacher: its head must match the student's task."""
    spec = plan.spec
    if plan.data.task is None:
        return bool(plan.main_metric) and spec.teacher_heads == PRETRAINING_HEADS
    task, theirs = spec.task, spec.teacher_task
    return task is not None and theirs is not None and (task.kind, task.labels) == (theirs.kind, theirs.labels)


def measure_teacher(teacher: Model, plan: DistillationPlan, notes: list[str] | None = None) -> dict[str, float]:
    """Metrics of the teacher on the dev split, with the sequence length of the last stage.

    Args:
      teacher: the teacher.
      plan: plan of the distillation.
      notes: receives the warnings, which are logged too.
    """
    evaluator = plan.data.evaluator(teacher, _length(plan), plan.run, plan.windows, plan.evaluation_batch_size)
    found = evaluator.metrics("of the teacher")
    log_info("teacher: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()))
    for note in flat_notes(evaluator, plan.tasks[0].labels if plan.data.task else (), "the teacher's"):
        log_info(f"warning: {note}")
        if notes is not None:
            notes.append(note)
    return found


def cache_teacher_metrics(teacher: Model, plan: DistillationPlan, cache: Path) -> None:
    """Measures the teacher, for runs that use a cache instead, unless the cache has its metrics already.

    Args:
      teacher: the teacher, loaded from the plan's directory.
      plan: plan of the distillation.
      cache: folder of the teacher cache; receives a `teacher.json`.
    """
    if not is_scorable(plan):
        return
    assert plan.teacher_directory is not None and teacher.tokenizer is not None
    origin = _origin(plan, teacher_digest(plan.teacher_directory), tokenizer_digest(teacher.tokenizer))
    if _read_metrics(cache / TEACHER_FILE, origin) is None:
        found = measure_teacher(teacher, plan)
        write_json(cache / TEACHER_FILE, {"origin": origin, "metrics": found})


def cached_teacher_metrics(plan: DistillationPlan) -> dict[str, float] | None:
    """Reads the metrics that `cache_teacher_metrics` wrote; None if they belong to another teacher or dev split."""
    assert plan.teacher_cache is not None
    manifests = cached_manifests(plan.teacher_cache, plan.teacher_stages)
    identities = [manifest.identity for manifest in manifests.values()]
    if not identities or not is_scorable(plan):
        return None
    # The plan has checked that all stages were cached from one teacher.
    origin = _origin(plan, identities[0].teacher, identities[0].tokenizer)
    found = _read_metrics(plan.teacher_cache / TEACHER_FILE, origin)
    if found is None:
        log_info(
            f"{plan.teacher_cache} has no metrics of the teacher on this dev split; run the same cache-teacher command "
            "to add them"
        )
    return found


def _origin(plan: DistillationPlan, teacher: str | None, tokenizer: str | None) -> dict[str, Any]:
    """Teacher, tokenizer, dev split and metrics that a measurement belongs to, as JSON values."""
    data = plan.data.given
    return {
        "teacher": teacher,
        "tokenizer": tokenizer,
        "examples": data.dev.identity,
        "max_length": _length(plan),
        "metrics": list(data.metrics),
    }


def _length(plan: DistillationPlan) -> int:
    return min(plan.stages[-1].max_length, plan.spec.teacher.max_position_embeddings)


def _read_metrics(path: Path, origin: dict[str, Any]) -> dict[str, float] | None:
    """Metrics in a file, if they have this origin; None also for a damaged file, which is written again."""
    try:
        content = parse_json(path.read_bytes(), path)
        return content["metrics"] if content["origin"] == origin else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
