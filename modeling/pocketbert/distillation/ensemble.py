"""Several teachers: their mean predictions become the examples' soft labels."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert.checkpoints.directory import describe_directory
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.confidence import most_certain
from pocketbert.distillation.method import Method
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import from_pretrained
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import text_logits
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.opening import with_truncation
from pocketbert.training.distribution import precision_policy
from pocketbert.training.plan import open_data
from pocketbert_runtime.answers.probabilities import probabilities_of, sigmoid_of
from pocketbert_runtime.label_names import label_positions

# A teacher's texts may not be longer than these, unless the method says so.
_LENGTH = 128


def taught_by_all(plan: DistillationPlan, teachers: Sequence[str | os.PathLike[str]]) -> DistillationPlan:
    """Returns the first teacher's plan with all teachers' predictions.

    Raises:
      UserError: a stage reads more than logits, or the teachers do not fit; see `with_mean_predictions`.
    """
    for stage in plan.stages:
        if hidden := [name for name in stage.teacher_features if name != "logits"]:
            raise UserError(
                f"stage {stage.name} reads {', '.join(hidden)}, and several teachers have predictions alone; give one "
                "teacher, or a method without this stage, such as tinybert with without=embedding,transformer"
            )
    with precision_policy(plan.run.teacher_precision or plan.run.precision):
        data = with_mean_predictions(teachers, plan.data.given, plan.objective, truncation=plan.run.truncation)
    return dataclasses.replace(
        plan,
        data=open_data(data),
        ensemble=tuple(teachers),
        spec=dataclasses.replace(plan.spec, soft_labels=True),
        # A student may start from the first teacher's layers.
        teacher_directory=plan.teacher_directory if plan.start.layers else None,
    )


def with_mean_predictions(
    teachers: Sequence[str | os.PathLike[str]], data: Any, method: Method, *, truncation: str | None = None
) -> TaskData:
    """Sets soft labels to the mean of softmax(t / T) over the teachers (Hinton et al. 2015, section 3).

    T is the method's temperature, so that its targets are this mean. Each teacher runs once on each text.
    `least_confidence` counts the mean's probabilities.

    Args:
      teachers: model directories with heads for the task in `data`, and the same labels in any order.
      data: a task with classes or several labels per text.
      method: the distillation method.
      truncation: how the teachers cut longer texts; None for their stored ways.
    Raises:
      UserError: lists the teachers that do not fit, or the data.
    """
    task_config = getattr(data, "task", None)
    if task_config is None or not task_config.labels or not isinstance(data.train, Examples):
        raise UserError("several teachers need a task with labels per text; received other data; give one teacher")
    problems = []
    for directory in teachers:
        heads = describe_directory(directory).tasks
        fits = bool(heads) and heads[0].kind == task_config.kind
        if not fits or label_positions(task_config.labels, heads[0].labels) is None:
            received = ", ".join(heads[0].labels) if heads else "no head"
            problems.append(f"{directory} must have the labels {', '.join(task_config.labels)}; received {received}")
    raise_if_any(problems, "several teachers")
    temperature = float(getattr(method, "temperature", 1.0))
    length = int(getattr(method, "max_length", None) or _LENGTH)
    fields: dict[str, Any] = {}
    for name in ("train", "augmented", "unlabelled"):
        examples = getattr(data, name)
        if examples is None:
            continue
        log_info(f"{len(teachers)} teachers answer {len(examples):,} texts")
        shares = [
            _tempered(directory, task_config.labels, examples, length, temperature, truncation)
            for directory in teachers
        ]
        soft = _untempered(np.mean(shares, axis=0), temperature, independent=_independent(task_config))
        fields[name] = dataclasses.replace(examples, soft_labels=soft)
    taught: TaskData = dataclasses.replace(data, **fields)
    if taught.least_confidence is None:
        return taught
    shares = fields["unlabelled"].soft_labels
    # With several labels, the mean is for or against each.
    certainty = np.maximum(shares, 1 - shares) if _independent(task_config) else shares.max(axis=1)
    return most_certain(taught, certainty)


def _tempered(
    directory: str | os.PathLike[str],
    labels: Sequence[str],
    examples: Examples,
    length: int,
    temperature: float,
    truncation: str | None,
) -> np.ndarray:
    """Computes a teacher's probabilities at a temperature, float64 [N, C], in the order of `labels`."""
    teacher = from_pretrained(directory)
    if truncation is not None and teacher.tokenizer is not None:
        teacher.tokenizer = with_truncation(teacher.tokenizer, truncation)
    logits = text_logits(teacher, examples, min(length, teacher.config.max_position_embeddings))
    positions = label_positions(labels, teacher.tasks[0].labels)
    assert positions is not None
    probabilities = sigmoid_of if _independent(teacher.tasks[0]) else probabilities_of
    return probabilities(logits[:, list(positions)] / temperature)


def _untempered(shares: np.ndarray, temperature: float, *, independent: bool) -> np.ndarray:
    """Inverts the temperature: returns probabilities with these shares at it."""
    powers = shares**temperature
    return np.asarray(
        powers / (powers + (1 - shares) ** temperature if independent else powers.sum(axis=1, keepdims=True))
    )


def _independent(task: Any) -> bool:
    return supervised_task(task).has_independent_labels
