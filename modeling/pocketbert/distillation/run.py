"""Distillation: `distill`, and several seeds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.ensemble import taught_by_all
from pocketbert.distillation.initialization import SupernetSlices, TeacherLayers
from pocketbert.distillation.method import Method
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation, warn_of_few_examples
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.model import Model
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.tasks.data_checks import cut_warning, training_warnings
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.callbacks import Callback
from pocketbert.training.config import DistillResult, RunConfig
from pocketbert.training.decision_options import log_heads_without_choice
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import saved_models
from pocketbert.training.plan import open_data
from pocketbert.training.run_data import Data
from pocketbert.training.trainer import run_plan


def distill(
    student: Model | str | os.PathLike[str] | EncoderConfig | TeacherLayers | SupernetSlices,
    data: Data,
    output: str | os.PathLike[str],
    *,
    teacher: Model | str | os.PathLike[str] | CachedTeacher | Sequence[Model | str | os.PathLike[str]] | None = None,
    method: Method = TinyBERT(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
    callbacks: Sequence[Callback] = (),
) -> DistillResult:
    """Distils a teacher into a student, stage by stage.

    Call it again with the same arguments to resume an interrupted run. On the same machine, the resumed run ends with
    bit-identical weights. For a finished run, it returns the result.

    Args:
      student: a preset's name, an architecture or a config.json for new weights; a model in memory or a model directory
        for its weights; `TeacherLayers` to start from teacher layers; or `SupernetSlices` to start from a supernet's
        slices. Layers with `trainable = False` in a student in memory keep their weights.
      data: a task's examples, plain text (general distillation), or pretraining examples.
      output: the run's folder: `model/`, `adapters.safetensors`, `stages/NAME/` (weights that earlier stages kept),
        `metrics.jsonl`, `tensorboard/`, `result.json`.
      teacher: a model in memory, a model directory, or cached targets; None if no stage reads a teacher. Several models
        in a list teach their mean predictions; the method must read logits alone.
      method: the method with its options.
      run: run options.
      callbacks: as for `finetune`.
    Raises:
      UserError: bad input, teacher and student do not match (the message lists all incompatibilities), a teacher cache
        was made from other data, or `output` contains a run with other options. Nothing was written.
      TrainingFailed: the loss or the outputs are not finite; the message names stage and step.
    """
    several = list(teacher) if isinstance(teacher, list | tuple) else []
    models = student, *(several or [teacher])
    with saved_models(*models, output=output, overwrite=run.overwrite) as (student_given, *teachers):
        for read in teachers:
            check_outputs(output, student_given, read, data)
        plan = plan_distillation(
            student_given,
            data,
            teacher=teachers[0],
            method=method,
            run=run,
            frozen=FrozenWeights.of(student),
        )
        if several:
            plan = taught_by_all(plan, teachers)
        warn_of_few_examples(plan)
        return distill_planned(plan, output, callbacks)


def distill_planned(
    plan: DistillationPlan, output: str | os.PathLike[str], callbacks: Sequence[Callback] = ()
) -> DistillResult:
    """Runs a planned distillation; see `distill`.

    Raises:
      UserError: examples or caches do not fit, or `output` contains a run with other options.
      TrainingFailed: the loss or the outputs are not finite.
    """
    return DistillResult.of(*run_plan(with_data_notes(plan), output, callbacks))


def with_data_notes(plan: DistillationPlan) -> DistillationPlan:
    """Adds warnings about the plan's data, which are logged."""
    data = plan.data.given
    if isinstance(data, TaskData):
        warnings = training_warnings(data, plan.vocabulary, min(stage.max_length for stage in plan.stages))
        for warning in warnings:
            log_info(f"warning: {warning}")
        if plan.teacher_vocabulary is not None and plan.teacher_stages:
            parts = [part for part in (data.train, data.unlabelled) if part is not None]
            length = min(stage.max_length for stage in plan.stages)
            cut = cut_warning(supervised_task(data.task), parts, plan.teacher_tokenizer, length)
            if cut is not None:
                log_info(f"warning: counted in the teacher's tokens, {cut}")
        log_heads_without_choice(plan.run, plan.data)
        plan = dataclasses.replace(plan, data_notes=tuple(warnings))
    return plan


def check_outputs(output: str | os.PathLike[str], student: Any, teacher: Any, data: Data) -> None:
    """Raises a `UserError` if a distillation would overwrite its input; models must be paths."""
    teachers = [teacher.folder, teacher.teacher] if isinstance(teacher, CachedTeacher) else [teacher]
    read = [student.supernet if isinstance(student, SupernetSlices) else student, *teachers, *open_data(data).paths()]
    check_inputs(output, [path for path in read if isinstance(path, str | os.PathLike)])
