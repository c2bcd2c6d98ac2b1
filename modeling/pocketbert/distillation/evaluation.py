"""Scores on the development examples: of the student as it learns, and of its teacher, live or as a store has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketbert.configs import TaskConfig
from pocketbert.distillation.method import PRETRAINING_HEADS
from pocketbert.distillation.preparation import Preparation
from pocketbert.distillation.stage_examples import StageExamples
from pocketbert.distillation.stage_run import Evaluator
from pocketbert.distillation.teacher_cache_identity import cached_manifests, teacher_digest, tokenizer_digest
from pocketbert.files import write_json
from pocketbert.json_reading import parse_json
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.tasks.forward import ModelForward
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.pretraining_evaluation import PretrainingEvaluator
from pocketbert.training.run_folder import TEACHER_FILE

# Examples a call, where nothing has to be kept for gradients.
EVALUATION_BATCH_SIZE = 32


def make_evaluator(model: Model, preparation: Preparation, examples: StageExamples, max_length: int) -> Evaluator:
    """What scores a model on a run's development examples.

    Args:
      model: a student, or the teacher.
      preparation: the run's; it has development examples.
      examples: the run's.
      max_length: tokens; longer texts are cut.
    """
    if preparation.task_data is None:
        assert preparation.dev_pretraining is not None
        return PretrainingEvaluator(model, preparation.dev_pretraining, preparation.run.evaluation_batches)
    metrics, dev = preparation.task_data.metrics, preparation.task_data.dev
    task = supervised_task(model.task)
    forward = ModelForward(model, task, EVALUATION_BATCH_SIZE)
    return task.evaluator(forward, dev, model.tokenizer, max_length, metrics=metrics, choose_threshold=True)


def teacher_answers(preparation: Preparation) -> bool:
    """Whether the teacher can be scored on the student's development examples."""
    setting = preparation.setting
    if preparation.dev_pretraining is not None:
        return setting.teacher_heads == PRETRAINING_HEADS
    task, theirs = setting.task, setting.teacher_task
    return task is not None and theirs is not None and _answers(task) == _answers(theirs)


def measure_teacher(teacher: Model, preparation: Preparation, examples: StageExamples) -> dict[str, float]:
    """The teacher's metrics on the development examples, cut as in the run's last stage."""
    found = make_evaluator(teacher, preparation, examples, _teacher_length(preparation)).metrics("the teacher's")
    log_info("teacher: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()))
    return found


def store_teacher_metrics(teacher: Model, preparation: Preparation, examples: StageExamples, store: Path) -> None:
    """Measures the teacher for the runs that read a store in its place, unless that is done already.

    Args:
      teacher: loaded from the preparation's directory.
      preparation: of the distillation.
      examples: its examples.
      store: the folder of stores; gets a `teacher.json` beside those of the stages.
    """
    if not teacher_answers(preparation):
        return
    assert preparation.teacher_directory is not None and teacher.tokenizer is not None
    origin = _origin(preparation, teacher_digest(preparation.teacher_directory), tokenizer_digest(teacher.tokenizer))
    if _read(store / TEACHER_FILE, origin) is None:
        found = measure_teacher(teacher, preparation, examples)
        write_json(store / TEACHER_FILE, {"origin": origin, "metrics": found})


def stored_teacher_metrics(preparation: Preparation) -> dict[str, float] | None:
    """What `store_teacher_metrics` has measured for a run from a store; None if that was not for this run."""
    assert preparation.store is not None
    reading = [stage.name for stage in preparation.stages if stage.teacher_features]
    identities = [manifest.identity for manifest in cached_manifests(preparation.store, reading).values()]
    if not identities or not teacher_answers(preparation):
        return None
    # They are all of one teacher: that was checked.
    origin = _origin(preparation, identities[0].teacher, identities[0].tokenizer)
    found = _read(preparation.store / TEACHER_FILE, origin)
    if found is None:
        log_info(
            f"{preparation.store}: the teacher was not measured on these development examples; the same cache-teacher "
            "command measures it"
        )
    return found


def _origin(preparation: Preparation, teacher: str | None, tokenizer: str | None) -> dict[str, Any]:
    """What metrics of a teacher are of, as JSON values."""
    data = preparation.task_data
    assert data is not None
    return {
        "teacher": teacher,
        "tokenizer": tokenizer,
        "examples": data.dev.identity,
        "max_length": _teacher_length(preparation),
        "metrics": list(data.metrics),
    }


def _teacher_length(preparation: Preparation) -> int:
    return min(preparation.stages[-1].max_length, preparation.setting.teacher.max_position_embeddings)


def _read(path: Path, origin: dict[str, Any]) -> dict[str, float] | None:
    """The metrics in a file, if they are of this origin; a damaged file has none."""
    try:
        content = parse_json(path.read_bytes(), path)
        return content["metrics"] if content["origin"] == origin else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _answers(task: TaskConfig) -> tuple[str, tuple[str, ...]]:
    return task.kind, task.labels
