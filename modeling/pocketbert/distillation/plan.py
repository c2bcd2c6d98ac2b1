"""Everything about a distillation that is known, and checked, before anything is written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pocketbert.configs import EncoderConfig
from pocketbert.data.pretraining_data import PretrainingData
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_cache_layout import MANIFEST_NAME
from pocketbert.distillation.initialization import TeacherLayers, plan_student
from pocketbert.distillation.method import DistillationSpec, Method, validated_stages
from pocketbert.distillation.teacher_cache_identity import cached_manifests, one_origin_problems, teacher_caches_digest
from pocketbert.distillation.teacher_description import TeacherDescription, are_nameless, describe_teacher, same_labels
from pocketbert.errors import UserError, raise_if_any
from pocketbert.progress import log_info
from pocketbert.tasks.registry import TASKS, listed
from pocketbert.training.callbacks import LINE_NAMES
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import ModelInit
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.pretraining_checks import (
    pretraining_heads,
    pretraining_problems,
    pretraining_vocabulary,
    unused_options,
)
from pocketbert.training.stage import Stage
from pocketbert.training.state import digest_directory
from pocketbert.training.task_data import with_metrics

_T = TypeVar("_T")


@dataclass(frozen=True)
class CachedTeacher:
    """A teacher's cached targets in place of the teacher.

    Attributes:
      folder: what `pocketbert cache-teacher` wrote.
      teacher: the teacher's model directory, whose files are then compared with the cache's; None takes any cache's.
    """

    folder: Path
    teacher: Path | None = None

    def __init__(self, folder: str | os.PathLike[str], teacher: str | os.PathLike[str] | None = None) -> None:
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "teacher", None if teacher is None else Path(teacher))


@dataclass(frozen=True, kw_only=True)
class DistillationPlan(TrainingPlan):
    """A distillation before its first step.

    Attributes:
      objective: the method.
      spec: teacher, student and task.
      teacher_directory: where the teacher is; None where only its cached targets are there, or no stage reads one.
      teacher_cache: the folder of cached targets, or None for a live teacher.
    """

    objective: Method
    spec: DistillationSpec
    teacher_directory: Path | None = None
    teacher_cache: Path | None = None

    @property
    def needs_teacher(self) -> bool:
        """Whether a stage reads a live teacher."""
        return self.teacher_cache is None and any(stage.teacher_features for stage in self.stages)

    def recorded(self) -> dict[str, Any]:
        """As `TrainingPlan`, with the teacher."""
        recorded = super().recorded()
        if self.teacher_directory is not None:
            recorded["teacher_sha256"] = digest_directory(self.teacher_directory)
        if self.teacher_cache is not None:
            names = [stage.name for stage in self.stages if stage.teacher_features]
            recorded["teacher_cache_sha256"] = teacher_caches_digest(self.teacher_cache, names)
        return recorded


def plan_distillation(
    student: str | os.PathLike[str] | EncoderConfig | TeacherLayers,
    data: TaskData | TextData | PretrainingData,
    *,
    teacher: str | os.PathLike[str] | CachedTeacher | None,
    method: Method,
    run: RunConfig,
) -> DistillationPlan:
    """Reads configurations, makes the stages and compares everything that must match; no weights are made.

    Args:
      student: as for `distill`, but for models in memory.
      data: as there.
      teacher: as there, but for models in memory.
      method: the method.
      run: how it is run.

    Returns:
      All that a run needs.

    Raises:
      UserError: lists everything that does not match, each with its remedy.
    """
    if not isinstance(teacher, CachedTeacher):
        teacher_directory, cache = None if teacher is None else Path(teacher), None
    else:
        teacher_directory, cache = teacher.teacher, teacher.folder
    if isinstance(data, TaskData):
        data = with_metrics(data)

    def reads(name: str, found: TeacherDescription) -> bool:
        try:
            planned = plan_student(student, found.config)
            stages = method.stages(_spec(found, planned, data))
        except UserError:
            return False
        return any(stage.name == name and stage.teacher_features for stage in stages)

    # What is wrong with one of them by itself comes first: what cannot be read cannot be compared.
    problems = _task_data_problems(data) if isinstance(data, TaskData) else []
    described = _attempt(problems, describe_teacher, teacher_directory, cache, reads)
    planned = None
    if described is not None:
        planned = _attempt(problems, plan_student, student, described.config)
    raise_if_any(problems, method.name)
    assert described is not None and planned is not None
    spec = _spec(described, planned, data)
    stages, unfit = validated_stages(method, spec)
    if unfit:
        problems.append(f"this teacher and student do not fit: {'; '.join(unfit)}")
    if stages:
        problems += _data_problems(stages, data)
        problems += [problem for stage in stages for problem in _stage_problems(stage, described, cache)]
    learns_pretraining = bool(stages) and all(stage.data == "pretraining" for stage in stages)
    if learns_pretraining and isinstance(data, PretrainingData):
        vocabularies = {"the teacher": spec.teacher_vocabulary, "the student": spec.student_vocabulary}
        problems += pretraining_problems(stages, data, spec.student, vocabularies)
    vocabulary = described.vocabulary or planned.vocabulary
    if vocabulary is None and isinstance(data, PretrainingData):
        vocabulary = pretraining_vocabulary(data)
    if vocabulary is None:
        problems.append(
            "texts cannot be cut into tokens without a vocab.txt; neither the teacher's folder nor the student's has "
            "one; put the vocabulary there"
        )
    if cache is not None and vocabulary is not None:
        _attempt(problems, vocabulary.config.require_default, "a teacher cache", "distil with the teacher itself")
    if cache is not None:
        reading = [stage.name for stage in stages if stage.teacher_features]
        manifests = _attempt(problems, cached_manifests, cache, reading)
        problems += one_origin_problems(manifests or {})
    raise_if_any([*problems, *unused_options(run, stages, data)], method.name)
    assert vocabulary is not None
    theirs, ours = described.task, spec.teacher_task
    if theirs is not None and ours is not None and theirs != ours and are_nameless(theirs):
        log_info(f"the teacher's labels have no names; its logits are taken as {', '.join(ours.labels)}, in this order")
    if isinstance(data, TaskData) and data.augmented is None and any(stage.data == "augmented" for stage in stages):
        log_info(
            f"{method.name} trains on augmented examples; none are given, so the {len(data.train)} original ones "
            "are used (pocketbert augment makes more)"
        )
    return DistillationPlan(
        objective=method,
        options={f"option_{name}": value for name, value in dataclasses.asdict(method).items()},
        stages=stages,
        run=run,
        start=planned,
        tasks=pretraining_heads() if learns_pretraining else (spec.task,) if spec.task else (),
        vocabulary=vocabulary,
        data=data,
        spec=spec,
        teacher_directory=teacher_directory,
        teacher_cache=cache,
    )


def _spec(
    teacher: TeacherDescription, planned: ModelInit, data: TaskData | TextData | PretrainingData
) -> DistillationSpec:
    task = data.task if isinstance(data, TaskData) else None
    return DistillationSpec(
        teacher=teacher.config or planned.config,
        student=planned.config,
        task=task,
        pairs=isinstance(data, TaskData) and data.train.has_pairs,
        teacher_task=same_labels(teacher.task, task),
        teacher_heads=teacher.heads,
        teacher_vocabulary=teacher.vocabulary,
        student_vocabulary=planned.vocabulary,
        start=planned.start,
    )


def _attempt(problems: list[str], call: Callable[..., _T], *arguments: Any, **options: Any) -> _T | None:
    """What the call gives, or None after its error is among the problems."""
    try:
        return call(*arguments, **options)
    except UserError as error:
        problems.append(str(error))
        return None


def _data_problems(stages: Sequence[Stage], data: TaskData | TextData | PretrainingData) -> list[str]:
    """What a stage learns from and is not given, and what is given and no stage learns from."""
    needs = {
        "text": (TextData, "learns from plain text; received none; give it (--text)"),
        "task": (TaskData, "learns from a task's examples; received none; give a task and its data"),
        "pretraining": (
            PretrainingData,
            "learns from pretraining examples; received none; give the folder that pocketbert pretrain-data wrote "
            "(--pretraining-data)",
        ),
    }
    needs["augmented"] = needs["task"]
    problems = [
        f"stage {stage.name} {text}"
        for stage in stages
        for kind, text in [needs[stage.data]]
        if not isinstance(data, kind)
    ]
    learned = {stage.data for stage in stages}
    if isinstance(data, TextData) and "text" not in learned:
        problems.append(
            f"no stage of this run learns from plain text; received {data.path}; leave it out (--text), or learn from "
            "it in a run of its own, without a task"
        )
    if isinstance(data, PretrainingData) and "pretraining" not in learned:
        problems.append("no stage learns from pretraining examples; received some; leave them out")
    if not isinstance(data, TaskData):
        return problems
    for stage in stages:
        if "labels" in stage.label_names:
            augmented = data.augmented if stage.data == "augmented" else None
            examples = data.train if augmented is None else augmented
            if not examples.labelled:
                problems.append(
                    f"stage {stage.name} learns from labels; {examples.source} has none; give labelled examples"
                )
    if data.augmented is not None and "augmented" not in learned:
        problems.append(
            f"no stage of this run learns from augmented examples; received {data.augmented.source}; leave them out "
            "(--augmented-file), or change the option that keeps the stages from them"
        )
    return problems


def uncacheable(stage: Stage) -> str:
    """Why a teacher's targets cannot be cached for a stage; empty where they can."""
    if stage.data == "pretraining":
        return (
            f"stage {stage.name} learns from pretraining examples, whose masks are new in each epoch unless they are "
            "baked in, and whose logits over the vocabulary are too large to be stored; give a live teacher"
        )
    if stage.masked_text:
        return (
            f"stage {stage.name} masks its text anew in each epoch, which no cached targets can follow; give a live "
            "teacher, or leave masking out"
        )
    return ""


def _stage_problems(stage: Stage, teacher: TeacherDescription, cache: Path | None) -> list[str]:
    problems = []
    where = f"stage {stage.name}"
    if stage.teacher_features and teacher.config is None:
        problems.append(
            f"{where} reads {', '.join(stage.teacher_features)} of a teacher; received neither a teacher's model "
            "directory nor a cache of its targets"
        )
    if cache is not None and stage.teacher_features:
        if uncacheable(stage):
            problems.append(uncacheable(stage))
        elif not (cache / stage.name / MANIFEST_NAME).exists():
            problems.append(
                f"{where} needs its targets in {cache / stage.name}; there are none; make them with pocketbert "
                "cache-teacher, or give a live teacher"
            )
    if stage.keep == "best" and stage.data == "pretraining":
        problems.append(f"{where} keeps the best weights by a task's metric, which pretraining examples do not have")
    elif stage.keep == "best" and "logits" not in stage.student_features:
        problems.append(f"{where} keeps the best weights by a metric, and so must read the student's logits")
    taken = {"loss", "learning_rate", *LINE_NAMES} & set(stage.weights)
    if taken:
        problems.append(f"{where}: no term of the loss may be called {', '.join(sorted(taken))}")
    return problems


def _task_data_problems(data: TaskData) -> list[str]:
    problems = []
    if not TASKS[data.task.kind].distillable:
        known = listed([kind for kind, task in TASKS.items() if task.distillable])
        problems.append(f"the task must be {known}; received {data.task.kind}")
    if data.main_metric not in data.metrics:
        problems.append(f"the main metric must be among {', '.join(data.metrics)}; received {data.main_metric}")
    for name, examples in (("training", data.train), ("development", data.dev), ("augmented", data.augmented)):
        if examples is None:
            continue
        if not len(examples):
            problems.append(f"there must be {name} examples; {examples.source} holds none")
        elif not examples.labelled and name == "development":
            problems.append(f"{name} examples need labels; {examples.source} has none")
        if examples.has_pairs != data.train.has_pairs:
            problems.append(f"{name} examples must be pairs where the training examples are; {examples.source} differs")
    return problems
