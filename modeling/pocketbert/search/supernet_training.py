"""Runs that train a learning supernet (EfficientBERT, section 3.2, search stage 3)."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, ClassVar

import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.distillation.distiller import DistillationTrainer, Distiller
from pocketbert.distillation.method import Method
from pocketbert.distillation.plan import DistillationPlan, plan_distillation
from pocketbert.distillation.run import check_outputs
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import raise_if_any
from pocketbert.model import Model
from pocketbert.search.sliced_adamw import SlicedAdamW
from pocketbert.search.supernet_step import SupernetStep, draw_shapes, possible_shapes, sliced_axes
from pocketbert.training.config import DistillResult, RunConfig
from pocketbert.training.initialization import saved_models
from pocketbert.training.optimizers import NamedOptimizer
from pocketbert.training.run_data import Data
from pocketbert.training.stage import Stage
from pocketbert.training.step import batch_and_targets, make_optimizer
from pocketbert.training.trainer import run_plan


def train_supernet(
    supernet: Model | str | os.PathLike[str] | EncoderConfig,
    data: Data,
    output: str | os.PathLike[str],
    *,
    teacher: Model | str | os.PathLike[str] | CachedTeacher | None = None,
    method: Method,
    run: RunConfig = RunConfig(),  # noqa: B008
) -> DistillResult:
    """Distils a teacher into a supernet, with one uniformly drawn candidate per step.

    Folder, log and resume are those of `pocketbert.distill`. Dev metrics and the kept model are those of the complete
    supernet; its parts start with `SupernetSlices`. Candidates depend on seed and step, so resumed runs draw the same.

    Args:
      supernet: architecture, model directory or model in memory; see `supernet_config`.
      data: examples of one task, or plain text.
      output: folder of the run.
      teacher: as for `distill`.
      method: the method.
      run: options of the run.

    Returns:
      The supernet and its metrics.

    Raises:
      UserError: as for `distill`, or the run needs what a learning supernet cannot do. Nothing was written.
      TrainingFailed: as for `distill`.
    """
    with saved_models(supernet, teacher) as (given, teacher_given):
        check_outputs(output, given, teacher_given, data)
        plan = plan_distillation(given, data, teacher=teacher_given, method=method, run=run)
        raise_if_any(_problems(plan), "learning supernet")
        # A run of `distill` with these options ends with other weights.
        plan = dataclasses.replace(plan, options={**plan.options, "learning_supernet": True})
        return DistillResult.of(*run_plan(plan, output, SupernetTrainer))


class SupernetTrainer(DistillationTrainer):
    """Trainer of a learning supernet; see `train_supernet`."""

    def make_step(self, stage: Stage) -> SupernetDistiller:
        """See `DistillationTrainer`."""
        live = bool(stage.teacher_features) and self.plan.teacher_cache is None
        teacher = self.teacher if live else None
        step = SupernetDistiller(self.model, self.plan.objective, stage, teacher=teacher, adapters=self.adapters)
        step.seed = self.plan.run.seed
        return step


class SupernetDistiller(Distiller):
    """A `Distiller` that updates the slices of one candidate per step.

    Attributes:
      seed: seed of the candidates.
    """

    TRACED: ClassVar = False
    model: Model
    seed = 0

    def make_optimizer(self, total_steps: int, first_step: int = 0) -> NamedOptimizer:
        """See `TrainingModel`."""
        kind = functools.partial(SlicedAdamW, sliced_axes=sliced_axes(self.model))
        return make_optimizer(self.stage, total_steps, first_step, kind)

    def compile(self, *arguments: Any, **options: Any) -> None:
        """See `TrainingModel`."""
        super().compile(*arguments, **options)
        self._head = next(iter(self.model.heads)) if "logits" in self.stage.student_features else ""
        self._supernet_step = SupernetStep(
            self.model,
            self.optimizer,
            {self._head: self.losses_of},
            self.stage.student_features,
            adapters=self.adapters,
            trainable=set(self.trained_variables()).__contains__,
            dropout=self.stage.student_dropout,
        )
        self._prepared = tf.function(self.prepared, autograph=False, reduce_retracing=True)

    def update(self, data: Any) -> dict[str, tf.Tensor]:
        """Updates the weights of the step's candidate; see `TrainingModel`."""
        _, readable, targets = self._prepared(*batch_and_targets(data))
        shapes = draw_shapes(self.model.config, self.seed, int(self.optimizer.iterations))
        losses = self._supernet_step(shapes, readable, targets, self._head)
        return dict(zip(self.loss_names, tf.unstack(losses), strict=True))


def _problems(plan: DistillationPlan) -> list[str]:
    problems = []
    if plan.run.distribution != "one":
        problems.append(f"it trains on one device; received distribution={plan.run.distribution}; use one")
    if len(plan.tasks) > 1:
        problems.append(f"a run has one head; received {', '.join(task.kind for task in plan.tasks)}")
    for stage in plan.stages:
        if stage.optimizer.algorithm != "adamw":
            problems.append(f"stage {stage.name} must use adamw; received {stage.optimizer.algorithm}")
        if stage.micro_batches != 1:
            problems.append(f"stage {stage.name} must have one micro-batch; received {stage.micro_batches}")
    possible_shapes(plan.start.config)
    return problems
