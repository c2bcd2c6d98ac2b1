"""One training step of any method: teacher and student in one graph, the method's losses, one update."""

from __future__ import annotations

from typing import Any, Protocol

from pocketbert.distillation.method import Method
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.stage import FeatureRequest, Stage
from pocketbert.training.step import Trainable, TrainingModel


class Teacher(Protocol):
    """What gives features: a `Model`, or anything like it."""

    def features(self, inputs: Any, request: FeatureRequest, training: bool | None = None) -> Features:
        """As `Model.features`."""


class Distiller(TrainingModel):
    """Trains a student in one stage of a method; see `TrainingModel` for the data sets that `fit` takes.

    The teacher is no part of this model: it runs without dropout, gets no gradient and is not saved.

    Args:
      student: what learns.
      method: gives targets and losses.
      stage: one of its stages.
      teacher: for targets that are not cached; None if they are, or if the stage reads nothing of a teacher.
      adapters: the method's, with their weights; they learn too.
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
        # In a function, since Keras makes a part of this model of every model that is an attribute.
        self._read_teacher = None if teacher is None else _reader(teacher, stage)

    def targets(self, inputs: Batch) -> Targets:
        """The method's targets, from the live teacher."""
        if not self.stage.teacher_features:
            return {}
        if self._read_teacher is None:
            raise ValueError(
                f"stage {self.stage.name} reads {', '.join(self.stage.teacher_features)} of the teacher; received "
                "neither a teacher nor cached targets"
            )
        return self._method.targets(self.stage, self._read_teacher(inputs), inputs)


def _reader(teacher: Teacher, stage: Stage) -> Any:
    return lambda inputs: teacher.features(inputs, stage.teacher_features, training=False)
