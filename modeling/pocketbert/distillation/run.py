"""Distillation as a run: a method's stages, and the student that they leave."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.pretraining_data import PretrainingData
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_cache import TeacherCache
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.evaluation import cached_teacher_metrics, measure_teacher, teacher_answers
from pocketbert.distillation.initialization import TeacherLayers, initialize_adapters, teacher_arrays
from pocketbert.distillation.method import Method
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.plan import CachedTeacher, DistillationPlan, plan_distillation
from pocketbert.distillation.teacher_cache_identity import teacher_cache_identity
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.model import Model, from_pretrained
from pocketbert.outputs import check_inputs
from pocketbert.progress import log_info
from pocketbert.training.config import DistillResult, RunConfig
from pocketbert.training.distribution import Distribution, open_distribution
from pocketbert.training.initialization import assign_weights, saved_models
from pocketbert.training.run import precision_policy, run_plan, run_seeds
from pocketbert.training.run_folder import TEACHER_FILE, read_record
from pocketbert.training.stage import Stage
from pocketbert.training.trainer import Trainer


def distill(
    student: Model | str | os.PathLike[str] | EncoderConfig | TeacherLayers,
    data: TaskData | TextData | PretrainingData,
    output: str | os.PathLike[str],
    *,
    teacher: Model | str | os.PathLike[str] | CachedTeacher | None = None,
    method: Method = TinyBERT(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
) -> DistillResult:
    """Distils a teacher into a student, stage by stage.

    Call it again with the same arguments to resume a run that was interrupted in any stage: on the same machine it ends
    with the weights that it would have had anyway, to the bit. A finished run gives its result.

    Args:
      student: a preset's name, an architecture or a config.json for fresh weights; a model, in memory or in a model
        directory, for its weights; or the teacher's layers to start from.
      data: what the student learns: a task, plain text (general distillation), or pretraining examples.
      output: the run's folder: `model/`, `adapters.safetensors`, `stages/NAME/` (what each stage but the last kept),
        `metrics.jsonl`, `tensorboard/`, `result.json`.
      teacher: a model in memory or in a model directory, or its cached targets with its metrics; None where no stage
        reads one.
      method: the method with its options.
      run: how to run.

    Returns:
      The student and its metrics.

    Raises:
      UserError: bad input, teacher and student that do not fit (everything is listed), a teacher cache that was made
        from something else, or `output` holds a run with other options. Nothing has been written then.
      TrainingFailed: the loss or the outputs are no longer finite; it names stage and step.
    """
    with saved_models(student, teacher) as (student_given, teacher_given):
        check_outputs(output, student_given, teacher_given, data)
        plan = plan_distillation(student_given, data, teacher=teacher_given, method=method, run=run)
        return distill_planned(plan, output)


def distill_planned(plan: DistillationPlan, output: str | os.PathLike[str]) -> DistillResult:
    """`distill` from where everything is checked and nothing is written.

    Args:
      plan: the distillation.
      output: as there.

    Returns:
      As there.

    Raises:
      UserError: examples or caches that do not fit, or `output` holds a run with other options.
      TrainingFailed: as there.
    """
    return DistillResult.of(*run_plan(plan, output, DistillationTrainer))


def distill_seeds(
    seeds: Sequence[int],
    student: Model | str | os.PathLike[str] | EncoderConfig | TeacherLayers,
    data: TaskData | TextData | PretrainingData,
    output: str | os.PathLike[str],
    *,
    run: RunConfig = RunConfig(),  # noqa: B008
    **arguments: Any,
) -> dict[str, Any]:
    """Runs `distill` once a seed, each in a folder `seed-N` of its own inside `output`.

    Args:
      seeds: all different.
      student: as for `distill`.
      data: likewise.
      output: the folder of folders; gets a `result.json` with what is returned.
      run: how each is run; its seed is replaced.
      **arguments: the others of `distill`.

    Returns:
      As `pocketbert.training.run.run_seeds`.
    """

    def run_one(seed: int, folder: Path) -> DistillResult:
        return distill(student, data, folder, run=dataclasses.replace(run, seed=seed), **arguments)

    return run_seeds(seeds, output, run_one, writes=lambda: open_distribution(run.distribution, run.tpu).is_chief)


def check_outputs(
    output: str | os.PathLike[str], student: Any, teacher: Any, data: TaskData | TextData | PretrainingData
) -> None:
    """Raises a `UserError` where a distillation would write what it reads; there are no models in memory."""
    if data is None:
        raise UserError("distillation takes a task's examples, plain text or pretraining examples; received none")
    if isinstance(data, TaskData):
        read: list[Any] = [data.train.source, data.dev.source]
    elif isinstance(data, TextData):
        read = [data.path]
    else:
        read = [data.folder, None if data.dev is None else data.dev.folder]
    given = [teacher.folder, teacher.teacher] if isinstance(teacher, CachedTeacher) else [teacher]
    check_inputs(output, [path for path in (student, *given, *read) if isinstance(path, str | os.PathLike)])


def copy_teacher_layers(student: Model, plan: DistillationPlan) -> Model:
    """The student, after it was given those layers of the teacher that it starts from, if any."""
    if plan.start.layers:
        layers, task = plan.start.layers, plan.spec.teacher_task
        assign_weights(student, teacher_arrays(student, plan.teacher_directory, task, layers))
    return student


class DistillationTrainer(Trainer):
    """The trainer of a distillation: it has a teacher, live or cached, and the method's adapters."""

    plan: DistillationPlan

    def __init__(self, plan: DistillationPlan, folder: Path, distribution: Distribution) -> None:
        super().__init__(plan, folder, distribution)
        self.adapters = dict(plan.objective.adapters(plan.spec))
        initialize_adapters(self.adapters, self.model.config.initializer_range, plan.run.seed)

    def make_model(self) -> Model:
        """The student with its first weights."""
        return copy_teacher_layers(super().make_model(), self.plan)

    def make_step(self, stage: Stage) -> Distiller:
        """What a step of the stage updates."""
        live = bool(stage.teacher_features) and self.plan.teacher_cache is None
        teacher = self.teacher if live else None
        return Distiller(self.model, self.plan.objective, stage, teacher=teacher, adapters=self.adapters)

    def teacher_cache(self, stage: Stage, encoded: EncodedExamples) -> TeacherCache | None:
        """The teacher's targets for a stage that reads cached ones."""
        plan = self.plan
        if plan.teacher_cache is None or not stage.teacher_features:
            return None
        identity = teacher_cache_identity(
            plan.objective, stage, encoded, teacher_directory=plan.teacher_directory, tokenizer=self.tokenizer
        )
        return TeacherCache.open(plan.teacher_cache / stage.name, identity)

    def begin(self) -> None:
        """Copies what the method copies, into a student that does not start from a directory."""
        if self.plan.start.start != "directory":
            self.plan.objective.initialize(self.teacher if self.plan.needs_teacher else None, self.model)

    def run(self) -> dict[str, Any]:
        """As `Trainer.run`, with the teacher's metrics."""
        teacher_metrics = self._teacher_metrics()
        return {**super().run(), "teacher_metrics": teacher_metrics}

    @functools.cached_property
    def teacher(self) -> Model:
        """The live teacher, loaded on first use."""
        assert self.plan.teacher_directory is not None
        log_info(f"loading the teacher, {self.plan.teacher_directory}")
        run = self.plan.run
        with precision_policy(run.teacher_precision or run.precision):
            return from_pretrained(self.plan.teacher_directory)

    def _teacher_metrics(self) -> dict[str, float] | None:
        """On the development examples: a live teacher's, measured once a run before training, or those in its cache."""
        plan, path = self.plan, self.folder / TEACHER_FILE
        if plan.teacher_cache is not None:
            return cached_teacher_metrics(plan)
        if not plan.needs_teacher or not teacher_answers(plan):
            return None
        # Every process measures, or none: the teacher is loaded by all of them at once.
        if not self.distribution.as_chief_says(path.exists()):
            found = measure_teacher(self.teacher, plan)
            if self.distribution.is_chief:
                write_json(path, found)
            return found
        return read_record(path)
