"""Training with a teacher: one step for any method."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from pocketbert.data.batches import SOFT_LABELS
from pocketbert.data.readers.soft_labels import soft_logits
from pocketbert.data.teacher_rows import without_teacher_rows
from pocketbert.distillation.method import Method
from pocketbert.distillation.other_tokens import teacher_features
from pocketbert.distillation.predictions import TAUGHT_TOKENS, taught_tokens
from pocketbert.tasks.base import Task
from pocketbert.tasks.parts import part_soft_labels
from pocketbert.tasks.registry import get_task
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import FeatureRequest, Stage
from pocketbert.training.step import Trainable, TrainingModel
from pocketbert_runtime.answers.several import output_name


class Teacher(Protocol):
    """A `Model`, or any object with `features`."""

    def features(self, inputs: Any, request: FeatureRequest, training: bool | None = None) -> Features:
        """See `Model.features`."""


class Distiller(TrainingModel):
    """Trains a student in one stage; see `TrainingModel` for the datasets that `fit` takes.

    The teacher is not part of this model: it runs without dropout, gets no gradients and is not saved.
    """

    def __init__(
        self,
        student: Trainable,
        method: Method,
        stage: Stage,
        *,
        teacher: Teacher | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        super().__init__(student, method, stage, adapters=adapters)
        self._method = method
        # A function, because Keras tracks every model that is an attribute.
        self._teacher = lambda: teacher

    def targets(self, inputs: Batch) -> Targets:
        """Returns the method's targets, from soft labels in the batch or from the live teacher."""
        stage, soft = self.stage, inputs.get(SOFT_LABELS)
        if not stage.teacher_features:
            return {}
        features: dict[str, Any] = {}
        more: Targets = {}
        inputs = {name: value for name, value in inputs.items() if name != SOFT_LABELS}
        readable = without_teacher_rows(inputs)
        if soft is not None and "logits" in stage.teacher_features:
            assert stage.task is not None
            features["logits"], more = _taught(get_task(stage.task), soft, tf.shape(inputs["input_mask"])[1])
        request = {name: layers for name, layers in stage.teacher_features.items() if name not in features}
        if not request:
            return {**self._method.targets(stage, features, readable), **more}
        teacher = self._teacher()
        if teacher is None:
            raise ValueError(
                f"stage {self.stage.name} reads {', '.join(self.stage.teacher_features)} from a teacher; received "
                "neither a teacher nor cached targets"
            )
        features |= teacher_features(teacher, inputs, request)
        return {**self._method.targets(stage, features, readable), **more}


def _taught(task: Task, soft: tf.Tensor, width: tf.Tensor) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns soft labels' logits for each head output, and targets that mark their tokens in `width` columns."""
    if task.parts:
        split = part_soft_labels(task, soft)
        logits, more = list[tf.Tensor](), dict[str, tf.Tensor]()
        for name, part in task.parts.items():
            of_part, taught = _taught(part, split[name], width)
            logits += of_part
            more |= {output_name(name, target): values for target, values in taught.items()}
        return logits, more
    targets = {}
    if soft.shape.rank == 3:
        soft, targets[TAUGHT_TOKENS] = taught_tokens(soft, width)
    return [soft_logits(soft, independent=task.has_independent_labels)], targets
