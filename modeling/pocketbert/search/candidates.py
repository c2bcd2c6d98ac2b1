"""Training and scoring of one candidate, also in another process."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pocketbert.data.task_data import TaskData, TextData
from pocketbert.distillation.distiller import DistillationTrainer
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.plan import plan_distillation
from pocketbert.search.space import SearchSpace
from pocketbert.training.config import RunConfig
from pocketbert.training.grid import Point
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert.training.trainer import run_plan

_OPTION, _SEPARATOR = "expressions", ";"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateTraining:
    """Everything that the candidates of a stage have in common.

    Attributes:
      space: turns a genotype into an architecture.
      supernet: model directory of the supernet.
      data: examples for training, and examples for scores as dev split.
      text: plain text for training before that, or None.
      text_method: method on plain text.
      text_steps: number of steps on plain text; 0 for none.
      teacher: model directory of the teacher.
      method: method on the examples.
    """

    space: SearchSpace
    supernet: str
    data: TaskData
    text: str | None
    text_method: EfficientBERT
    text_steps: int
    teacher: str
    method: EfficientBERT


def genotype_point(genotype: tuple[str, ...]) -> Point:
    """A genotype as the options of a job."""
    return {_OPTION: _SEPARATOR.join(genotype)}


def train_candidate(training: CandidateTraining, point: Point, seed: int, folder: Path) -> None:
    """Trains and scores a candidate.

    Args:
      training: the common part.
      point: the genotype, as `genotype_point` gives it.
      seed: seed of the run.
      folder: run folder; its `result.json` has the scores.

    Raises:
      TrainingFailed: the loss or the outputs are not finite.
    """
    encoder = training.space.config(tuple(str(point[_OPTION]).split(_SEPARATOR)))
    student: SupernetSlices | str = SupernetSlices(training.supernet, encoder)
    if training.text is not None and training.text_steps:
        text_folder = folder.with_name(f"{folder.name}-text")
        _train(student, TextData(training.text), text_folder, training, training.text_method, seed)
        student = str(text_folder / MODEL_FOLDER)
    _train(student, training.data, folder, training, training.method, seed)


class _Trainer(DistillationTrainer):
    """Does not score the teacher again for every candidate."""

    def score_teacher(self) -> None:
        """Scores nothing."""


def _train(
    student: SupernetSlices | str,
    data: TaskData | TextData,
    folder: Path,
    training: CandidateTraining,
    method: EfficientBERT,
    seed: int,
) -> None:
    plan = plan_distillation(student, data, teacher=training.teacher, method=method, run=RunConfig(seed=seed))
    run_plan(plan, folder, _Trainer)
