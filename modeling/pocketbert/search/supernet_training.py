"""Runs for training a learning supernet (EfficientBERT, section 3.2, search stage 3)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from pocketbert.configs import EncoderConfig
from pocketbert.distillation.method import Method
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import check_outputs
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import raise_if_any
from pocketbert.model import Model
from pocketbert.search.constraints import limits_of
from pocketbert.search.space import SearchSpace
from pocketbert.search.supernet_plan import SupernetPlan
from pocketbert.search.supernet_step import possible_shapes
from pocketbert.search.supernet_tasks import SupernetTask, TasksPlan, plan_tasks
from pocketbert.training.config import DistillResult, RunConfig
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import saved_models
from pocketbert.training.run_data import Data
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
    """Distils a teacher into a supernet, with one random candidate per step; returns the supernet and its metrics.

    Folder, log and resume are as in `pocketbert.distill`. Dev metrics and the kept model belong to the complete
    supernet; its parts start with `SupernetSlices`. Candidates depend on seed and step, so resumed runs draw the same.

    Departure: the complete supernet's metrics select the kept weights. The authors' code measures the stage 2 winner.

    Several tasks train one encoder with a head per task (section 4.3). Each batch has examples for one task and learns
    from that task's teacher. The kept model has the best mean main metric over tasks.

    Args:
      supernet: architecture, model directory or model in memory; see `supernet_config`.
      data: examples for one task, plain text, or several tasks with their teachers.
      output: folder for the run.
      teacher: as for `distill`; None for several tasks.
      method: the method.
      run: run options.
      space: stage 3 space; candidates then meet its constraints, as in the authors' code. None draws from all.
    Raises:
      UserError: as for `distill`, or a learning supernet cannot do what the run needs. Nothing was written.
      TrainingFailed: as for `distill`.
    """
    models = saved_models(supernet, teacher, output=output, overwrite=run.overwrite)
    with models as (supernet_given, teacher_given):
        plan: SupernetPlan
        if isinstance(data, Sequence):
            for task in data:
                check_outputs(output, supernet_given, task.teacher, task.data)
            plan = plan_tasks(supernet_given, data, method=method, run=run)
        else:
            check_outputs(output, supernet_given, teacher_given, data)
            planned = plan_distillation(supernet_given, data, teacher=teacher_given, method=method, run=run)
            plan = planned.as_kind(SupernetPlan)
        raise_if_any(_problems(plan), "learning supernet")
        # A run of `distill` with these options ends with other weights.
        limits = limits_of(space.constraints if space else ())
        options = {**plan.options, "learning_supernet": True, "limits": limits}
        plan = dataclasses.replace(plan, options=options, frozen=FrozenWeights.of(supernet), space=space)
        return DistillResult.of(*run_plan(plan, output))


def _problems(plan: SupernetPlan) -> list[str]:
    problems = []
    if plan.run.distribution != "one":
        problems.append(f"it trains on one device; received distribution={plan.run.distribution}; use one")
    if plan.run.decision_thresholds or plan.run.reject is not None:
        given = "decision_thresholds" if plan.run.decision_thresholds else "reject"
        problems.append(f"it chooses no thresholds; received {given}; choose them when you train one of its parts")
    if len(plan.tasks) > 1 and not isinstance(plan, TasksPlan):
        problems.append(f"these data have one head; received {', '.join(task.kind for task in plan.tasks)}")
    if plan.run.precision == "float16":
        problems.append("it has no loss scaling; received precision=float16; use bfloat16 or float32")
    for stage in plan.stages:
        if stage.optimizer.algorithm != "adamw":
            problems.append(f"stage {stage.name} must use adamw; received {stage.optimizer.algorithm}")
        if stage.micro_batches != 1:
            problems.append(f"stage {stage.name} must have one micro-batch; received {stage.micro_batches}")
    possible_shapes(plan.start.config)
    return problems
