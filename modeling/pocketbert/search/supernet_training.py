"""Runs that train a learning supernet (EfficientBERT, section 3.2, search stage 3)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import tensorflow as tf

from pocketbert.configs import EncoderConfig, head_names
from pocketbert.data.batches import EncodedExamples
from pocketbert.distillation.distiller import DistillationTrainer, Distiller
from pocketbert.distillation.method import Method
from pocketbert.distillation.plan import DistillationPlan, plan_distillation
from pocketbert.distillation.run import check_outputs
from pocketbert.distillation.teacher import CachedTeacher, is_scorable, measure_teacher
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_json
from pocketbert.model import Model
from pocketbert.search.constraints import limits_of
from pocketbert.search.sliced_adamw import SlicedAdamW
from pocketbert.search.space import SearchSpace, Shape
from pocketbert.search.supernet_step import SupernetStep, draw_shapes, possible_shapes, sliced_axes
from pocketbert.search.supernet_tasks import SupernetTask, TasksPlan, TasksSource, plan_tasks
from pocketbert.training.config import DistillResult, RunConfig
from pocketbert.training.distribution import Distribution
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import saved_models
from pocketbert.training.optimizers import NamedOptimizer
from pocketbert.training.run_data import Data
from pocketbert.training.run_folder import TEACHER_FILE, read_record
from pocketbert.training.stage import Stage
from pocketbert.training.stage_data import Source
from pocketbert.training.step import batch_and_targets, make_optimizer
from pocketbert.training.trainer import run_plan


def train_supernet(
    supernet: Model | str | os.PathLike[str] | EncoderConfig,
    data: Data | Sequence[SupernetTask],
    output: str | os.PathLike[str],
    *,
    teacher: Model | str | os.PathLike[str] | CachedTeacher | None = None,
    method: Method,
    run: RunConfig = RunConfig(),  # noqa: B008
    space: SearchSpace | None = None,
) -> DistillResult:
    """Distils a teacher into a supernet, with one random candidate per step.

    Folder, log and resume are those of `pocketbert.distill`. Dev metrics and the kept model are those of the complete
    supernet; its parts start with `SupernetSlices`. Candidates depend on seed and step, so resumed runs draw the same.

    Departure: the kept weights are those with the best metrics of the complete supernet. The authors' code measures the
    winner of stage 2.

    Several tasks train one encoder with a head per task (section 4.3). Each batch has examples of one task and learns
    from the teacher of this task. The kept model has the best mean of the tasks' main metrics.

    Args:
      supernet: architecture, model directory or model in memory; see `supernet_config`.
      data: examples of one task, plain text, or several tasks with their teachers.
      output: folder of the run.
      teacher: as for `distill`; None for several tasks.
      method: the method.
      run: options of the run.
      space: the space of stage 3; candidates then meet its constraints, as in the authors' code. None draws uniformly
        from all candidates.

    Returns:
      The supernet and its metrics.

    Raises:
      UserError: as for `distill`, or the run needs what a learning supernet cannot do. Nothing was written.
      TrainingFailed: as for `distill`.
    """
    with saved_models(supernet, teacher) as (given, teacher_given):
        plan: DistillationPlan
        if isinstance(data, Sequence):
            for task in data:
                check_outputs(output, given, task.teacher, task.data)
            plan = plan_tasks(given, data, method=method, run=run)
        else:
            check_outputs(output, given, teacher_given, data)
            plan = plan_distillation(given, data, teacher=teacher_given, method=method, run=run)
        raise_if_any(_problems(plan), "learning supernet")
        # A run of `distill` with these options ends with other weights.
        limits = limits_of(space.constraints if space else ())
        options = {**plan.options, "learning_supernet": True, "limits": limits}
        plan = dataclasses.replace(plan, options=options, frozen=FrozenWeights.of(supernet))
        return DistillResult.of(*run_plan(plan, output, functools.partial(SupernetTrainer, space=space)))


class SupernetTrainer(DistillationTrainer):
    """Trainer of a learning supernet; see `train_supernet`."""

    def __init__(
        self, plan: DistillationPlan, folder: Path, distribution: Distribution, space: SearchSpace | None = None
    ) -> None:
        super().__init__(plan, folder, distribution)
        self._space = space

    def make_source(self, index: int, stage: Stage) -> Source:
        """See `Trainer`; mixes the batches of several tasks."""
        if not isinstance(self.plan, TasksPlan):
            return super().make_source(index, stage)
        parts = [cast(EncodedExamples, part.encoded(part.stages[index])) for part in self.plan.parts]
        return TasksSource(parts, self.plan.run.seed)

    def make_step(self, stage: Stage) -> SupernetDistiller:
        """See `DistillationTrainer`."""
        live = bool(stage.teacher_features) and self.plan.teacher_cache is None
        step = SupernetDistiller(
            self.model, self.plan.objective, stage, teacher=self.teacher if live else None, adapters=self.adapters
        )
        step.seed, step.space = self.plan.run.seed, self._space
        if isinstance(self.plan, TasksPlan):
            index = self.plan.stages.index(stage)
            distillers = [
                Distiller(
                    self.model,
                    part.objective,
                    part.stages[index],
                    teacher=self.teacher_of(part) if live else None,
                    adapters=self.adapters,
                )
                for part in self.plan.parts
            ]
            step.tasks = lambda: distillers
        return step

    def score_teacher(self) -> dict[str, float] | None:
        """See `DistillationTrainer`; scores the teacher of every task."""
        if not isinstance(self.plan, TasksPlan):
            return super().score_teacher()
        path = self.folder / TEACHER_FILE
        if not self.plan.needs_teacher or not all(is_scorable(part) for part in self.plan.parts):
            return None
        if not path.exists():
            found = [measure_teacher(self.teacher_of(part), part) for part in self.plan.parts]
            data: Any = self.plan.data
            write_json(path, data.mean(dict(zip(head_names(data.tasks), found, strict=True))))
        return read_record(path)


class SupernetDistiller(Distiller):
    """A `Distiller` that updates the slices of one candidate per step.

    Attributes:
      seed: seed of the candidates.
      space: draws candidates that meet its constraints; None draws from all.
      tasks: returns the distillers of several tasks in the order of the heads, for batches with the number of their
        task; None for one task. A function, because Keras tracks every model that is an attribute.
    """

    TRACED: ClassVar = False
    model: Model
    seed = 0
    space: SearchSpace | None = None
    tasks: Callable[[], Sequence[Distiller]] | None = None

    def make_optimizer(self, total_steps: int, first_step: int = 0) -> NamedOptimizer:
        """See `TrainingModel`."""
        kind = functools.partial(SlicedAdamW, sliced_axes=sliced_axes(self.model))
        return make_optimizer(self.stage, total_steps, first_step, kind)

    def compile(self, *arguments: Any, **options: Any) -> None:
        """See `TrainingModel`."""
        super().compile(*arguments, **options)
        tasks = self.tasks() if self.tasks else [self]
        heads = list(self.model.heads) if self.tasks or "logits" in self.stage.student_features else [""]
        self._supernet_step = SupernetStep(
            self.model,
            self.optimizer,
            {head: task.losses_of for head, task in zip(heads, tasks, strict=True)},
            self.stage.student_features,
            adapters=self.adapters,
            trainable=set(self.trained_variables()).__contains__,
            dropout=self.stage.student_dropout,
        )
        self._prepared = {
            head: tf.function(task.prepared, autograph=False, reduce_retracing=True)
            for head, task in zip(heads, tasks, strict=True)
        }

    def update(self, data: Any) -> dict[str, tf.Tensor]:
        """Updates the weights of the step's candidate; see `TrainingModel`."""
        heads, number = list(self._prepared), 0
        if self.tasks:
            data, number = data
        head = heads[int(number)]
        _, readable, targets = self._prepared[head](*batch_and_targets(data))
        step = int(self.optimizer.iterations)
        if self.space is None:
            shapes = draw_shapes(self.model.config, self.seed, step)
        else:
            shapes = _shapes_within_limits(self.space, self.seed, step)
        losses = self._supernet_step(shapes, readable, targets, head)
        return dict(zip(self.loss_names, tf.unstack(losses), strict=True))


def _shapes_within_limits(space: SearchSpace, seed: int, step: int) -> tuple[Shape, ...]:
    """The candidate of a step that meets the constraints; the winner if tight ones leave no other in reach."""
    try:
        genotype = space.sample(np.random.default_rng((seed, step)))
    except UserError:
        genotype = space.winner
    return space.shapes(genotype)


def _problems(plan: DistillationPlan) -> list[str]:
    problems = []
    if plan.run.distribution != "one":
        problems.append(f"it trains on one device; received distribution={plan.run.distribution}; use one")
    if len(plan.tasks) > 1 and not isinstance(plan, TasksPlan):
        problems.append(f"these data have one head; received {', '.join(task.kind for task in plan.tasks)}")
    for stage in plan.stages:
        if stage.optimizer.algorithm != "adamw":
            problems.append(f"stage {stage.name} must use adamw; received {stage.optimizer.algorithm}")
        if stage.micro_batches != 1:
            problems.append(f"stage {stage.name} must have one micro-batch; received {stage.micro_batches}")
    possible_shapes(plan.start.config)
    return problems
