"""Score a model or a bundle on labelled data."""

from __future__ import annotations

from typing import Any

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.tasks.interfaces import Evaluator
from pocketbert.tasks.predictor import Predictor
from pocketbert.tasks.registry import supervised_task


def labelled_evaluator(
    predictor: Predictor, data: LabelledData, config: TaskConfig | None = None, **options: Any
) -> Evaluator:
    """Creates an evaluator on data in the predictor's order; a `UserError` without labels or for other tasks."""
    task = supervised_task(config or predictor.task.config)
    task.check_data(data)
    if not data.labelled:
        raise UserError(f"evaluate needs {data.missing_labels}; use pocketbert predict for data without labels")
    windows = predictor.windows
    return task.evaluator(
        predictor.forward, data, predictor.tokenizer, predictor.max_length, show_progress=True, **windows, **options
    )
