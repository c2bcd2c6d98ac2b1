"""Trains and scores one candidate, also in another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.files import write_json
from pocketbert.search.space import SearchSpace
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import make_model, plan_slices
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert.training.trainer import run_plan
from pocketbert.trials.jobs import RESULT_FILE

EXPRESSIONS = "expressions"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateTraining:
    """Everything that a stage's candidates have in common.

    Attributes:
      space: turns a genotype into an architecture.
      supernet: the supernet's model directory.
      data: examples for training, and examples for scores as dev split.
      text: plain text for training before that, or None.
      text_method: method on plain text.
      teacher: the teacher's model directory.
      text_teacher: model directory of the teacher for plain text.
      method: method on the examples.
      trains: whether candidates train; in stage 3 they are scored with the supernet's weights.
    """

    space: SearchSpace
    supernet: str
    data: TaskData
    text: str | None
    text_method: EfficientBERT
    teacher: str
    text_teacher: str
    method: EfficientBERT
    trains: bool


def train_candidate(training: CandidateTraining, point: Mapping[str, Any], seed: int, folder: Path) -> None:
    """Trains and scores a candidate.

    Args:
      training: the common part.
      point: the genotype as `EXPRESSIONS`.
      seed: the run's seed.
      folder: run folder; its `result.json` has the scores.
    Raises:
      TrainingFailed: the loss or the outputs are not finite.
    """
    encoder = training.space.config(point[EXPRESSIONS])
    if not training.trains:
        _score(training, encoder, folder)
        return
    runs: list[tuple[TaskData | TextData, Path, str, EfficientBERT]] = []
    if training.text is not None:
        text, on_text = TextData(training.text), folder.with_name(f"{folder.name}-text")
        runs.append((text, on_text, training.text_teacher, training.text_method))
    runs.append((training.data, folder, training.teacher, training.method))
    student: SupernetSlices | str = SupernetSlices(training.supernet, encoder)
    for data, run_folder, teacher, method in runs:
        plan = plan_distillation(student, data, teacher=teacher, method=method, run=RunConfig(seed=seed))
        # Every candidate has the same teacher and the same baselines.
        run_plan(dataclasses.replace(plan, compares=False), run_folder)
        student = str(run_folder / MODEL_FOLDER)


def _score(training: CandidateTraining, encoder: EncoderConfig, folder: Path) -> None:
    """Scores slices of the supernet, without training."""
    data, planned = TaskRunData(training.data), plan_slices(training.supernet, encoder)
    assert planned.vocabulary is not None
    model = make_model(planned, data.tasks, open_tokenizer(planned.vocabulary))
    evaluator = data.evaluator(model, training.method.max_length, RunConfig(), {}, 32)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RESULT_FILE, {"main_metric": data.main_metric, "metrics": evaluator.metrics("of a candidate")})
