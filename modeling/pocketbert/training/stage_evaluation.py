"""What scores a model while it learns, on a run's development examples."""

from __future__ import annotations

from typing import Protocol

from pocketbert.data.task_data import TaskData, TextData
from pocketbert.model import Model
from pocketbert.tasks.outputs import ModelForward
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.pretraining_evaluation import PretrainingEvaluator
from pocketbert.training.stage import Stage


class StageEvaluator(Protocol):
    """What scores a model."""

    def metrics(self, when: str) -> dict[str, float]:
        """The metrics of the weights as they are; `when` is for an error's message."""


def evaluated_length(plan: TrainingPlan, stage: Stage) -> int | None:
    """The tokens of the examples that score a stage; None where there are none, or the stage trains no head."""
    data = plan.data
    if isinstance(data, TextData) or "logits" not in stage.student_features and isinstance(data, TaskData):
        return None
    if isinstance(data, TaskData):
        return stage.max_length
    return None if data.dev is None else data.dev.max_length


def make_evaluator(model: Model, plan: TrainingPlan, max_length: int) -> StageEvaluator:
    """What scores a model on a run's development examples.

    Args:
      model: the trained one, or its teacher.
      plan: the run's; it has development examples.
      max_length: tokens; longer texts are truncated.
    """
    data = plan.data
    assert not isinstance(data, TextData)
    if not isinstance(data, TaskData):
        assert data.dev is not None
        return PretrainingEvaluator(model, data.dev, plan.run.evaluation_batches)
    task = supervised_task(model.task)
    return task.evaluator(
        ModelForward(model, task, plan.evaluation_batch_size),
        data.dev,
        model.tokenizer,
        max_length,
        metrics=data.metrics,
        choose_threshold=True,
        **plan.windows,
    )
