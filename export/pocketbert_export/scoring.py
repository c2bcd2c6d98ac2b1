"""A model's or a bundle's scores on labelled data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.tasks.base import Evaluator
from pocketbert.tasks.metrics import Scores
from pocketbert.tasks.predictor import Predictor
from pocketbert.tasks.registry import supervised_task
from pocketbert_export.label_order import named


def labelled_evaluator(
    predictor: Predictor, data: LabelledData, data_task: str | None = None, **options: Any
) -> Evaluator:
    """Scores a network on labelled data.

    Args:
      predictor: answers the data.
      data: labelled, their labels in the order of the predictor's.
      data_task: the name of the data's task where the predictor's has none, or another's.
      **options: of the task's `evaluator`.

    Raises:
      UserError: data without labels, or of another kind than the predictor's.
    """
    task = supervised_task(named(predictor.task.config, data_task))
    task.check_data(data)
    if not data.labelled:
        raise UserError(f"evaluate needs {data.missing_labels}; pocketbert predict answers without")
    windows = predictor.windows
    return task.evaluator(
        predictor.forward, data, predictor.tokenizer, predictor.max_length, show_progress=True, **windows, **options
    )


def score(
    predictor: Predictor, data: LabelledData, metrics: Sequence[str] | None = None, main_metric: str | None = None
) -> Scores:
    """The scores of a network; see `labelled_evaluator`.

    Args:
      predictor: answers the data.
      data: labelled.
      metrics: of `pocketbert.tasks.metrics`; None for the task's own. Questions always have their own.
      main_metric: the one of them that counts most; None for the task's own.
    """
    return labelled_evaluator(predictor, data, metrics=metrics).scores(main_metric)
