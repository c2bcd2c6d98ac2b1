"""Selects unlabelled texts with a sure teacher."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.heads_config import with_decisions_of
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import supervised_task


def confident(data: TaskData, teacher: Model, max_length: int) -> TaskData:
    """Leaves out unlabelled texts if the teacher's best label is less probable than `least_confidence`.

    With several labels, the teacher must be as sure that each one applies or does not; with several heads, as sure
    about each head's answer, and each word's tag.

    Args:
      data: the data, with unlabelled texts and `least_confidence`.
      teacher: the teacher.
      max_length: the teacher's maximum sequence length in tokens.
    Raises:
      UserError: the teacher is sure about no text.
    """
    assert data.unlabelled is not None
    # The best label, whatever thresholds the teacher's answers have.
    task = supervised_task(with_decisions_of(teacher.tasks[0], None))
    predictor = model_predictor(teacher, max_length=max_length)
    rows: Any = task.rows(data.unlabelled, predictor.tokenizer, predictor.max_length)
    return most_certain(data, rows.certainty(predictor.forward(rows.encoded, show_progress=True)))


def most_certain(data: TaskData, certainty: np.ndarray) -> TaskData:
    """Leaves out unlabelled texts with an answer below `least_confidence`.

    Args:
      data: see `confident`.
      certainty: the answers' probabilities, [N], or those for and against each label, [N, labels].
    Raises:
      UserError: no text is left.
    """
    least, texts = data.least_confidence, data.unlabelled
    assert least is not None and texts is not None
    lowest = certainty.reshape(len(texts), -1).min(axis=1)
    sure = np.flatnonzero(lowest >= least)
    log_info(f"{len(sure):,} of {len(texts):,} unlabelled texts have a label with a probability of at least {least:g}")
    if not len(sure):
        raise UserError(
            f"the teacher must be sure of some text; its largest probability is {lowest.max():.3f}, below "
            f"least_confidence={least:g}; lower it"
        )
    return dataclasses.replace(data, unlabelled=texts.select(sure), least_confidence=None)
