"""The answer table: kind → class."""

from __future__ import annotations

from pocketbert_runtime.answers.base import Answers
from pocketbert_runtime.answers.classification import ClassAnswers
from pocketbert_runtime.answers.embedding import VectorAnswers
from pocketbert_runtime.answers.multi_label import LabelAnswers
from pocketbert_runtime.answers.regression import ScoreAnswers
from pocketbert_runtime.answers.several import HeadAnswers
from pocketbert_runtime.answers.span import SpanAnswers
from pocketbert_runtime.answers.token_classification import TagAnswers
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.task_config import TaskConfig

_CLASSES = (ClassAnswers, LabelAnswers, ScoreAnswers, SpanAnswers, TagAnswers, VectorAnswers, HeadAnswers)
ANSWERS: dict[str, type[Answers]] = {answers.kind: answers for answers in _CLASSES}


def answers_of(config: TaskConfig | None, source: str) -> Answers:
    """Returns the answers for a network that must predict.

    Args:
      config: its task; None for a bare encoder.
      source: the network's name in messages.
    Raises:
      UserError: the network has no task, or one that the runtime cannot answer.
    """
    if config is None or config.kind not in ANSWERS:
        received = "none" if config is None else config.kind
        raise UserError(f"{source} must have a task of kind {', '.join(ANSWERS)} to predict; it has {received}")
    return ANSWERS[config.kind](config)
