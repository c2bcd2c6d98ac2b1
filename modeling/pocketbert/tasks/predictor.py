"""Predictions and scores by float models and bundles, for all tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.interfaces import Evaluator
from pocketbert.tasks.registry import listed, supervised_kinds, supervised_task
from pocketbert_runtime import predictor as runtime
from pocketbert_runtime.predictor import fitting_windows


class Predictor(runtime.Predictor):
    """A predictor that also scores the network on data.

    Attributes:
      task: the network's task.
    """

    task: SupervisedTask

    def evaluator(self, data: Any, **options: Any) -> Evaluator:
        """Returns the evaluator for labelled data; see `SupervisedTask.evaluator`."""
        return self.task.evaluator(self.forward, data, self.tokenizer, self.max_length, **self.windows, **options)


def model_predictor(model: Any, source: str = "the model", **windows: int | None) -> Predictor:
    """Returns a predictor for a float model's first head.

    Args:
      model: a `pocketbert.Model` with a supervised task and a tokenizer.
      source: the model's name in messages.
      **windows: `max_length`, where other tasks truncate texts, and options in the task's `window_options`.
    Raises:
      UserError: there is no supervised task or no tokenizer, or the windows do not fit.
    """
    task = predicting_task(model.task, source)
    if model.tokenizer is None:
        raise UserError(f"{source} must have a vocabulary to read text; it has none; put vocab.txt beside its weights")
    positions = task.max_length(model.config.max_position_embeddings)
    default = min(task.default_max_length or positions, positions)
    max_length, windows = fitting_windows(task, windows, default, positions, f"the model's {positions} positions")
    return Predictor(task, model.forward, model.tokenizer, max_length, **windows)


def text_logits(model: Any, examples: LabelledData, max_length: int) -> np.ndarray:
    """A float model's first head's logits for texts or pairs, float32 [N, ...]; longer ones are truncated."""
    predictor = model_predictor(model, max_length=max_length)
    rows = predictor.task.rows(examples, predictor.tokenizer, predictor.max_length)
    return predictor.forward(rows.encoded, show_progress=True)["logits"]


def predicting_task(config: Any, source: str) -> SupervisedTask:
    """Returns a network's task; raises `UserError` if it is not supervised."""
    rule = f"{source} must have a task of kind {listed(supervised_kinds())} to predict; it has"
    return supervised_task(config, rule, "fine-tune it first")
