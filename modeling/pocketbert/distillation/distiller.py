"""Training with a teacher: one step of any method."""

from __future__ import annotations

from typing import Any, Protocol

from pocketbert.distillation.method import Method
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import FeatureRequest, Stage
from pocketbert.training.step import Trainable, TrainingModel


class Teacher(Protocol):
    """A `Model`, or any object with `features`."""

    def features(self, inputs: Any, request: FeatureRequest, training: bool | None = None) -> Features:
        """See `Model.features`."""


class Distiller(TrainingModel):
    """Trains a student in one stage of a method; see `TrainingModel` for the datasets that `fit` takes.

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
        """The method's targets, from the live teacher."""
        if not self.stage.teacher_features:
            return {}
        teacher = self._teacher()
        if teacher is None:
            raise ValueError(
                f"stage {self.stage.name} reads {', '.join(self.stage.teacher_features)} from a teacher; received "
                "neither a teacher nor cached targets"
            )
        with padding_after_texts(teacher):
            features = teacher.features(inputs, self.stage.teacher_features, training=False)
        return self._method.targets(self.stage, features, inputs)
