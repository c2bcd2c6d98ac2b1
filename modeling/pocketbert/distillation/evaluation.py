"""Scores on the development examples: of the student as it learns, and of its teacher, live or as a store has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketbert.configs import PRETRAINING_HEADS, TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.teacher_cache_identity import cached_manifests, teacher_digest, tokenizer_digest
from pocketbert.files import write_json
from pocketbert.json_reading import parse_json
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.training.run_folder import TEACHER_FILE
from pocketbert.training.stage_evaluation import make_evaluator


def teacher_answers(plan: DistillationPlan) -> bool:
    """Whether the teacher can be scored on the student's development examples."""
    spec = plan.spec
    if not isinstance(plan.data, TaskData):
        return bool(plan.main_metric) and spec.teacher_heads == PRETRAINING_HEADS
    task, theirs = spec.task, spec.teacher_task
    return task is not None and theirs is not None and _answers(task) == _answers(theirs)


def measure_teacher(teacher: Model, plan: DistillationPlan) -> dict[str, float]:
    """The teacher's metrics on the development examples, cut as in the run's last stage."""
    found = make_evaluator(teacher, plan, _teacher_length(plan)).metrics("the teacher's")
    log_info("teacher: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()))
    return found


def cache_teacher_metrics(teacher: Model, plan: DistillationPlan, store: Path) -> None:
    """Measures the teacher for the runs that read a store in its place, unless that is done already.

    Args:
      teacher: loaded from the plan's directory.
      plan: of the distillation.
      store: the folder of stores; gets a `teacher.json` beside those of the stages.
    """
    if not teacher_answers(plan):
        return
    assert plan.teacher_directory is not None and teacher.tokenizer is not None
    origin = _origin(plan, teacher_digest(plan.teacher_directory), tokenizer_digest(teacher.tokenizer))
    if _read(store / TEACHER_FILE, origin) is None:
        found = measure_teacher(teacher, plan)
        write_json(store / TEACHER_FILE, {"origin": origin, "metrics": found})


def cached_teacher_metrics(plan: DistillationPlan) -> dict[str, float] | None:
    """What `cache_teacher_metrics` has measured for a run from a store; None if that was not for this run."""
    assert plan.teacher_cache is not None
    reading = [stage.name for stage in plan.stages if stage.teacher_features]
    identities = [manifest.identity for manifest in cached_manifests(plan.teacher_cache, reading).values()]
    if not identities or not teacher_answers(plan):
        return None
    # They are all of one teacher: that was checked.
    origin = _origin(plan, identities[0].teacher, identities[0].tokenizer)
    found = _read(plan.teacher_cache / TEACHER_FILE, origin)
    if found is None:
        log_info(
            f"{plan.teacher_cache}: the teacher was not measured on these development examples; the same cache-teacher "
            "command measures it"
        )
    return found


def _origin(plan: DistillationPlan, teacher: str | None, tokenizer: str | None) -> dict[str, Any]:
    """What metrics of a teacher are of, as JSON values."""
    data = plan.data
    assert isinstance(data, TaskData)
    return {
        "teacher": teacher,
        "tokenizer": tokenizer,
        "examples": data.dev.identity,
        "max_length": _teacher_length(plan),
        "metrics": list(data.metrics),
    }


def _teacher_length(plan: DistillationPlan) -> int:
    return min(plan.stages[-1].max_length, plan.spec.teacher.max_position_embeddings)


def _read(path: Path, origin: dict[str, Any]) -> dict[str, float] | None:
    """The metrics in a file, if they are of this origin; a damaged file has none."""
    try:
        content = parse_json(path.read_bytes(), path)
        return content["metrics"] if content["origin"] == origin else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _answers(task: TaskConfig) -> tuple[str, tuple[str, ...]]:
    return task.kind, task.labels
