"""Several tasks for one learning supernet: one encoder with a head per task, and one task per batch."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf

from pocketbert.configs import EncoderConfig, head_names
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.method import Method
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import raise_if_any
from pocketbert.files import write_json
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.search.supernet_plan import SupernetDistiller, SupernetPlan
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import tokenizer_problems
from pocketbert.training.objective import Adapters
from pocketbert.training.plan import PlannedRun
from pocketbert.training.run_data import RunData, StageEvaluator
from pocketbert.training.run_folder import TEACHER_FILE, read_record
from pocketbert.training.stage import Stage
from pocketbert.training.stage_batches import StageBatches

# Mean of the tasks' main metrics, as in GLUE's score.
MEAN = "mean"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupernetTask:
    """A task for a supernet.

    Attributes:
      data: the task and its examples. All tasks need different names.
      teacher: model directory of a teacher fine-tuned on the task.
    """

    data: TaskData
    teacher: str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TasksPlan(SupernetPlan):
    """A distillation for several tasks before its first step.

    Attributes:
      parts: a plan per task; their stages differ only in the task.
    """

    data: TasksData
    parts: tuple[DistillationPlan, ...]

    @functools.cached_property
    def teacher(self) -> Model:
        """The first task's teacher, so that no teacher is loaded twice."""
        return self.parts[0].teacher

    def recorded(self) -> dict[str, Any]:
        """See `Plan`; adds every task's record."""
        shared = super().recorded()
        return shared | {
            f"{name}_{field}": value
            for name, part in zip(head_names(self.tasks), self.parts, strict=True)
            for field, value in part.recorded().items()
            if shared.get(field) != value
        }

    def open_batches(self, index: int, replicas: int) -> StageBatches:
        """See `Plan`; mixes the tasks' batches."""
        parts = [cast(EncodedExamples, part.encoded(part.stages[index])) for part in self.parts]
        return tasks_batches(self.stages[index], parts, self.run.seed, replicas)

    def make_step(self, stage: Stage, model: Model, adapters: Adapters) -> SupernetDistiller:
        """See `Plan`; every task learns from its teacher."""
        step, index = super().make_step(stage, model, adapters), self.stages.index(stage)
        distillers = [part.make_step(part.stages[index], model, adapters) for part in self.parts]
        step.tasks = lambda: distillers
        return step

    def teacher_metrics(self, run: PlannedRun, notes: list[str]) -> dict[str, float] | None:
        """See `DistillationPlan`; measures every task's teacher."""
        path = run.folder / TEACHER_FILE
        if not self.needs_teacher or not all(part.can_score_teacher for part in self.parts):
            return None
        if not path.exists():
            metrics = [part.measure_teacher(part.teacher) for part in self.parts]
            write_json(path, self.data.mean(dict(zip(head_names(self.tasks), metrics, strict=True))))
        return read_record(path)


def plan_tasks(
    supernet: str | os.PathLike[str] | EncoderConfig, tasks: Sequence[SupernetTask], *, method: Method, run: RunConfig
) -> TasksPlan:
    """Plans to distil two or more teachers into one supernet; see `plan_distillation`.

    The stages learn from the teachers only.

    Raises:
      UserError: a task alone cannot be distilled, or the tasks do not fit together; lists all problems.
    """
    parts = [
        plan_distillation(supernet, task.data, teacher=Path(task.teacher), method=method, run=run) for task in tasks
    ]
    first = parts[0]
    names = head_names([part.tasks[0] for part in parts])
    problems = []
    for name, part in zip(names, parts, strict=True):
        encoder, first_encoder = part.spec.teacher, first.spec.teacher
        for field in ("num_layers", "num_attention_heads", "hidden_size"):
            if getattr(encoder, field) != getattr(first_encoder, field):
                problems.append(
                    f"all teachers need the same {field}; the teacher of {name} has {getattr(encoder, field)}, that of "
                    f"{names[0]} {getattr(first_encoder, field)}; fine-tune one pretrained model on every task"
                )
        remedy = "fine-tune one pretrained model on every task"
        owners = (f"the teacher of {names[0]}", f"the teacher of {name}")
        problems += tokenizer_problems(first.vocabulary, part.vocabulary, *owners, remedy)
        for stage, other in zip(part.stages, first.stages, strict=False):
            if stage.label_names:
                problems.append(
                    f"several tasks learn from teachers only; {name} learns from labels in stage {stage.name}; remove "
                    "the option that adds labels"
                )
            if _common(stage) != _common(other):
                problems.append(
                    f"all tasks need the same stages; those of {name} and {names[0]} differ; give the method's "
                    "options that depend on the task, such as epochs"
                )
        if len(part.stages) != len(first.stages):
            problems.append(f"all tasks need the same stages; {name} has {len(part.stages)}")
    raise_if_any(list(dict.fromkeys(problems)), "tasks of a supernet")
    together = TasksData([part.data for part in parts])
    return first.as_kind(TasksPlan, tasks=together.tasks, data=together, parts=tuple(parts))


class TasksData(RunData):
    """Examples for several tasks, as run data."""

    served = ("task",)
    main_metric = MEAN

    def __init__(self, parts: Sequence[RunData]) -> None:
        self.parts = list(parts)
        self.given = [part.given for part in parts]
        self.tasks = tuple(part.tasks[0] for part in parts)

    def paths(self) -> list[str | os.PathLike[str] | None]:
        return [path for part in self.parts for path in part.paths()]

    def recorded(self) -> dict[str, Any]:
        """See `RunData`; `TasksPlan` records the tasks."""
        return {}

    def evaluated_length(self, stage: Stage) -> int | None:
        return self.parts[0].evaluated_length(stage)

    def evaluator(
        self, model: Model, max_length: int, run: RunConfig, windows: Mapping[str, Any], batch_size: int
    ) -> StageEvaluator:
        scored = [part.evaluator(model, max_length, run, windows, batch_size) for part in self.parts]
        return _TasksEvaluator(dict(zip(head_names(self.tasks), scored, strict=True)), self.mean)

    def mean(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Returns all metrics as `TASK/METRIC`, and the mean main metric."""
        main = [values[part.main_metric] for values, part in zip(metrics.values(), self.parts, strict=True)]
        named = {f"{name}/{metric}": value for name, values in metrics.items() for metric, value in values.items()}
        return {MEAN: math.fsum(main) / len(main), **named}

    def result(self, metrics: Mapping[str, float], title: str) -> dict[str, Any]:
        if metrics:
            log_info(f"{title}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        return super().result(metrics, title)


def tasks_batches(stage: Stage, parts: Sequence[EncodedExamples], seed: int, replicas: int = 1) -> StageBatches:
    """Makes batches for several tasks; every batch has examples for one task.

    Each task is batched as if alone; its last batch may be smaller. A seeded permutation mixes the batches, so tasks
    appear in proportion to their examples. An element is a pair: inputs and the task's number, an int32 scalar.
    """
    firsts = np.cumsum([0, *(len(part) for part in parts)])
    tokens = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = [part.offsets[1:] + before for part, before in zip(parts, tokens, strict=False)]
    together = dataclasses.replace(
        parts[0],
        word_ids=np.concatenate([part.word_ids for part in parts]),
        type_ids=np.concatenate([part.type_ids for part in parts]),
        offsets=np.concatenate([[0], *offsets]),
        labels=None,
        groups=None,
    )

    def order(batch_size: int, epoch: int) -> list[np.ndarray]:
        rows = [
            row + first
            for part, first in zip(parts, firsts, strict=False)
            for row in plan_batches(part.lengths, batch_size=batch_size, seed=seed, epoch=epoch)
        ]
        # Another random stream than for the example order.
        mixed = np.random.default_rng([seed, epoch, len(parts)]).permutation(len(rows))
        return [rows[index] for index in mixed]

    def elements(rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        del epoch
        tasks = [np.searchsorted(firsts, row[0], side="right") - 1 for row in rows]
        numbers = tf.data.Dataset.from_tensor_slices(np.asarray(tasks, np.int32))
        return tf.data.Dataset.zip((dataset(together, rows), numbers))

    return StageBatches(stage, len(together), order, elements, replicas)


class _TasksEvaluator:
    """Scores every head on its task."""

    def __init__(self, parts: Mapping[str, StageEvaluator], mean: Any) -> None:
        self._parts, self._mean = dict(parts), mean

    def metrics(self, when: str) -> dict[str, float]:
        return self._mean({name: part.metrics(f"of {name} {when}") for name, part in self._parts.items()})

    @property
    def loss(self) -> float | None:
        """The tasks' mean loss; see `StageEvaluator`."""
        losses = [part.loss for part in self._parts.values()]
        present = [loss for loss in losses if loss is not None]
        return math.fsum(present) / len(present) if len(present) == len(losses) else None


def _common(stage: Stage) -> dict[str, Any]:
    """Describes the part of a stage that all tasks must share."""
    return {name: value for name, value in stage.describe().items() if name != "task"}
