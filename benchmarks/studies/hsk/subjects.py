"""Teacher, student and stages that the studies of HSK's store share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.presets import preset

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.batches import EncodedExamples
    from pocketbert.data.teacher_cache_writer import TeacherCachePlan
    from pocketbert.distillation.methods.hsk import HSK
    from pocketbert.model import Model
    from pocketbert.training.stage import Stage

THREADS = 2
LENGTH = 128
# The paper's amounts for training from a store (appendix D).
KNOWLEDGE = "1,9,0.1"
STUDENT = "tinybert_4l_312d"


@dataclass(frozen=True, kw_only=True)
class StoreTeacher:
    """A teacher with its method and stages for one student.

    Attributes:
      teacher: the teacher.
      directory: its model directory.
      method: the method.
      stages: `hidden` and `prediction`.
      adapters: the projection W.
    """

    teacher: Model
    directory: Path
    method: HSK
    stages: tuple[Stage, ...]
    adapters: dict[str, Any]

    def plan(self, stage: Stage, examples: EncodedExamples, output: Path, dtype: str, masks: str) -> TeacherCachePlan:
        """Plans the store of a stage, with its size."""
        from pocketbert.distillation.cache_teacher import plan_teacher_cache

        return plan_teacher_cache(
            self.teacher, self.directory, self.method, stage, examples, output, dtype=dtype, masks=masks
        )

    def write(self, stage: Stage, examples: EncodedExamples, output: Path, dtype: str, masks: str) -> Path:
        """Writes the store of a stage; returns its folder."""
        from pocketbert.distillation.cache_teacher import cache_targets

        return cache_targets(
            self.teacher, self.directory, self.method, stage, examples, output, dtype=dtype, masks=masks
        )


def use_threads() -> None:
    """Gives TensorFlow `THREADS` threads; call it before TensorFlow is imported."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)


def subject(teacher: Model, directory: Path, task: TaskConfig, **options: Any) -> StoreTeacher:
    """Saves a teacher, and plans HSK for a `STUDENT`.

    Args:
      teacher: the teacher with a head for the task.
      directory: the new model directory.
      task: the task.
      **options: of `HSK`, besides knowledge and length.
    """
    from pocketbert.distillation.method import DistillationSpec, plan_stages
    from pocketbert.distillation.methods.hsk import HSK

    assert teacher.tokenizer is not None
    if not directory.exists():
        teacher.save_pretrained(directory)
    spec = DistillationSpec(
        teacher=teacher.config,
        student=preset(STUDENT).config,
        task=task,
        teacher_task=task,
        teacher_vocabulary=teacher.tokenizer.vocabulary,
    )
    method = HSK(**{"knowledge": KNOWLEDGE, "max_length": LENGTH, **options})
    return StoreTeacher(
        teacher=teacher,
        directory=directory,
        method=method,
        stages=tuple(plan_stages(method, spec)),
        adapters=dict(method.adapters(spec)),
    )


def distiller(given: StoreTeacher, *, live: bool, total_steps: int = 10_000) -> Any:
    """A new student with random weights in the stage `hidden`, ready for steps.

    Args:
      given: teacher and stages.
      live: whether the teacher computes the targets; otherwise batches contain them.
      total_steps: number of steps of the schedule.
    """
    from pocketbert.distillation.distiller import Distiller
    from pocketbert.distillation.initialization import initialize_adapters
    from pocketbert.model import from_preset
    from pocketbert.training.step import make_optimizer

    student = from_preset(STUDENT, task=given.teacher.tasks, seed=0)
    initialize_adapters(given.adapters, student.config.initializer_range, 0)
    found = Distiller(
        student,
        given.method,
        given.stages[0],
        teacher=given.teacher if live else None,
        adapters=given.adapters,
    )
    found.compile(optimizer=make_optimizer(given.stages[0], total_steps=total_steps))
    return found
