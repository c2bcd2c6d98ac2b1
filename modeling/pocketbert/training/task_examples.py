"""What a task's examples are to training: tokens with labels, and what scores a model on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.data.glue import GLUE
from pocketbert.data.questions import QuestionFile
from pocketbert.data.task_data import TaskData, TaskExamples
from pocketbert.data.windows import WindowOptions
from pocketbert.model import Model
from pocketbert.tasks.metrics import default_metrics
from pocketbert.training.evaluation import Evaluator
from pocketbert.training.question_answering import QuestionEvaluator, encode_questions, unanswered_baseline
from pocketbert.training.scores import Scores, constant_baseline, positive_class


class TaskEvaluator(Protocol):
    """Scores a model on labelled examples.

    Attributes:
      task: the model's, with what the last evaluation chose (`TaskConfig.null_threshold`).
    """

    task: TaskConfig

    def metrics(self, when: str) -> dict[str, float]:
        """The metrics of the weights as they are; `when` is for an error's message."""

    def scores(self, main_metric: str, metrics: Mapping[str, float]) -> Scores:
        """The metrics beside a baseline's; `metrics` is what the method of that name gave for the weights."""


def encode_examples(
    examples: TaskExamples, tokenizer: Callable[..., Any], max_length: int, windows: Mapping[str, Any] = {}
) -> EncodedExamples:
    """Tokenizes examples once.

    Args:
      examples: sentences, pairs or questions.
      tokenizer: the model's.
      max_length: tokens an example.
      windows: other fields of `WindowOptions`; questions alone have a use for them.

    Raises:
      UserError: windows cannot be cut so.
    """
    if isinstance(examples, QuestionFile):
        return encode_questions(examples, tokenizer, WindowOptions(max_length=max_length, **windows))
    return encode(examples, tokenizer, max_length)


def make_evaluator(
    model: Model,
    examples: TaskExamples,
    metrics: Sequence[str],
    batch_size: int,
    max_length: int,
    windows: Mapping[str, Any] = {},
) -> TaskEvaluator:
    """What scores a model.

    Args:
      model: with the examples' task; its weights may change between evaluations.
      examples: labelled ones.
      metrics: names for `pocketbert.tasks.metrics.compute`; questions have their own.
      batch_size: examples, or windows, a call of the model.
      max_length: as for `encode_examples`.
      windows: as there.
    """
    if isinstance(examples, QuestionFile):
        return QuestionEvaluator(model, examples, WindowOptions(max_length=max_length, **windows), batch_size)
    assert model.tokenizer is not None
    return Evaluator(model, encode(examples, model.tokenizer, max_length), metrics, batch_size)


def beside_baseline(
    task: TaskConfig, examples: TaskExamples, names: Sequence[str], main_metric: str, metrics: Mapping[str, float]
) -> Scores:
    """Metrics that a model has already been given, beside the baseline's; without the results of each class.

    Args:
      task: the examples'.
      examples: labelled ones.
      names: the metrics, as for `make_evaluator`.
      main_metric: the one of them that counts most.
      metrics: the model's on these examples.
    """
    if isinstance(examples, QuestionFile):
        return Scores(main_metric=main_metric, metrics=metrics, baseline=unanswered_baseline(examples))
    assert examples.labels is not None
    with_f1 = "f1" in names and task.kind == "classification"
    return Scores(
        main_metric=main_metric,
        metrics=metrics,
        baseline=constant_baseline(task, names, examples.labels, examples.groups),
        positive_label=task.labels[positive_class(task)] if with_f1 else None,
    )


def task_metrics(task: TaskConfig) -> tuple[tuple[str, ...], str]:
    """The metrics of a task, and the one that chooses the best checkpoint: GLUE's where it has the name of one of its.

    Args:
      task: classification, regression or spans. A GLUE task's name with labels in another number, or with another
        kind of head, is that of something else.
    """
    glue = GLUE.get(task.name)
    if glue is None or (glue.task.kind, len(glue.task.labels)) != (task.kind, len(task.labels)):
        return default_metrics(task)
    return glue.metrics, glue.main_metric


def with_metrics(data: TaskData) -> TaskData:
    """The same with the task's own metrics where none are given."""
    if data.metrics:
        return data
    metrics, main_metric = task_metrics(data.task)
    return dataclasses.replace(data, metrics=metrics, main_metric=data.main_metric or main_metric)


def are_labelled(examples: TaskExamples) -> bool:
    """Whether all examples have labels."""
    return examples.labelled if isinstance(examples, QuestionFile) else examples.labels is not None


def are_pairs(examples: TaskExamples) -> bool:
    """Whether an example is two texts; a question and its paragraph are."""
    return isinstance(examples, QuestionFile) or examples.pairs is not None
