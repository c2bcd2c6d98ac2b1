"""Unlabelled texts of which a teacher is sure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import text_logits
from pocketbert.tasks.registry import supervised_task


def confident(data: TaskData, teacher: Model, max_length: int) -> TaskData:
    """Leaves out unlabelled texts for which the teacher's best label is less probable than `least_confidence`.

    Of several labels, the teacher must be as sure of the presence or absence of each one.

    Args:
      data: the data, with unlabelled texts and `least_confidence`.
      teacher: the teacher.
      max_length: tokens that the teacher reads of a text.

    Raises:
      UserError: the teacher is sure of no text.
    """
    least, texts = data.least_confidence, data.unlabelled
    assert least is not None and texts is not None
    task: Any = supervised_task(teacher.tasks[0])
    certainty = task.certainty(text_logits(teacher, texts, max_length)).reshape(len(texts), -1).min(axis=1)
    sure = np.flatnonzero(certainty >= least)
    log_info(f"{len(sure):,} of {len(texts):,} unlabelled texts have a label with a probability of at least {least:g}")
    if not len(sure):
        raise UserError(
            f"the teacher must be sure of some text; its largest probability is {certainty.max():.3f}, below "
            f"least_confidence={least:g}; lower it"
        )
    return dataclasses.replace(data, unlabelled=texts.select(sure), least_confidence=None)
