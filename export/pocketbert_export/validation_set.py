"""What the gate asks a bundle: real texts or questions as rows of tokens, and the task's metric of the answers."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.questions import QuestionFile
from pocketbert.data.windows import WindowOptions, make_windows, stream_windows
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.tasks import metrics
from pocketbert.tasks.answer_scores import mean_scores, squad_scorer
from pocketbert.tasks.answers import answer_questions
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.question_answering import as_examples
from pocketbert.training.scores import positive_class
from pocketbert.training.task_examples import are_labelled, task_metrics
from pocketbert_export.checks import Outputs, Scored
from pocketbert_export.length_buckets import Inputs

# Of 2 % that int8 changes, one way or the other, on 3,000 examples 60 ** 0.5 / 3000 = 0.26 points are the standard
# deviation of chance: half a point stands out of it.
MOST_EXAMPLES = 3000

GivenExamples: TypeAlias = Examples | QuestionFile


class ValidationSet(abc.ABC):
    """Rows of tokens with what is known of them.

    Attributes:
      encoded: int32 `[n, s]` by name.
      count: how many texts or questions they are.
      source: where they come from.
      labelled: whether a metric can be taken.
    """

    encoded: Inputs
    count: int
    source: str
    labelled: bool

    @abc.abstractmethod
    def score(self, task: TaskConfig, name: str, outputs: Outputs, order: np.ndarray) -> Scored:
        """The metric of some answers, and which of them are right.

        Args:
          task: what the outputs mean.
          name: the metric's.
          outputs: by name, row after row without padding.
          order: `[n]`, which row each is.
        """


class TextExamples(ValidationSet):
    """Sentences or pairs.

    Args:
      examples: `MOST_EXAMPLES` of them are taken, evenly: a file may have one language or kind after the other.
      tokenizer: the bundle's.
      length: the bundle's longest.
    """

    def __init__(self, examples: Examples, tokenizer: WordPieceTokenizer, length: int) -> None:
        taken = examples.select(_evenly(len(examples), MOST_EXAMPLES))
        encoded = tokenizer(taken.texts, taken.pairs, max_length=length)
        self.encoded = {name: np.asarray(encoded[name]) for name in INPUT_NAMES}
        self.count, self.source, self.labelled = len(taken), taken.source, taken.labels is not None
        self._labels = taken.labels

    def score(self, task: TaskConfig, name: str, outputs: Outputs, order: np.ndarray) -> Scored:
        """As `ValidationSet`."""
        assert self._labels is not None
        labels, predictions = self._labels[order], metrics.predictions_of(task, outputs["logits"])
        right = None if task.kind == "regression" else (labels == predictions).astype(np.float64)
        if right is not None and right.ndim == 2:
            # Each label of an example is a decision.
            right = right.sum(axis=1)
        return Scored(metrics.compute([name], labels, predictions, positive=positive_class(task))[name], right)


class QuestionExamples(ValidationSet):
    """Questions, a row for each window of their paragraphs.

    Args:
      questions: so many are taken, evenly, that they have about `MOST_EXAMPLES` windows.
      tokenizer: the bundle's.
      length: the bundle's longest.
      windows: further fields of `WindowOptions`.
    """

    def __init__(
        self, questions: QuestionFile, tokenizer: WordPieceTokenizer, length: int, windows: Mapping[str, Any]
    ) -> None:
        options = WindowOptions(max_length=length, **windows)
        taken = questions.select(_evenly(len(questions), MOST_EXAMPLES))
        rows = sum(len(part) for _, part in stream_windows(taken, tokenizer, options))
        self._questions = [*taken.select(_evenly(len(taken), max(1, len(taken) * MOST_EXAMPLES // rows)))]
        self._windows = make_windows(self._questions, tokenizer, options)
        rows_of_all = as_examples(self._windows, length, tokenizer.pad_token_id)
        self.encoded, _ = rows_of_all.batch(np.arange(len(self._windows)))
        self.count, self.source = len(self._questions), questions.source
        self.labelled = questions.labelled
        self._scorer = squad_scorer(questions.num_impossible > 0)

    def score(self, task: TaskConfig, name: str, outputs: Outputs, order: np.ndarray) -> Scored:
        """As `ValidationSet`; the threshold for no answer is the task's, and by F1 an answer may be right in part."""
        lengths = np.diff(self._windows.offsets)[order]
        # Where in the order of the windows each token that was answered stands.
        behind = np.cumsum(lengths)
        places = np.arange(behind[-1]) + np.repeat(self._windows.offsets[order] - (behind - lengths), lengths)
        logits = np.empty((2, behind[-1]), np.float32)
        logits[:, places] = outputs["start_logits"], outputs["end_logits"]
        answered = answer_questions(
            [question.context for question in self._questions],
            self._windows,
            *logits,
            with_null=task.null_threshold is not None,
        )
        exact, f1 = np.transpose(
            [
                self._scorer(found.text(task.null_threshold), question.answers)
                for question, found in zip(self._questions, answered, strict=True)
            ]
        )
        impossible = [question.impossible for question in self._questions]
        return Scored(mean_scores(exact, f1, impossible)[name], f1 if name == "f1" else exact)


def validation_set(
    examples: GivenExamples, tokenizer: WordPieceTokenizer, length: int, windows: Mapping[str, Any]
) -> ValidationSet:
    """What the gate asks of texts or questions; see the two classes."""
    if isinstance(examples, QuestionFile):
        return QuestionExamples(examples, tokenizer, length, windows)
    return TextExamples(examples, tokenizer, length)


def gate_metric(task: TaskConfig | None, metric: str | None, examples: GivenExamples | None) -> str | None:
    """The metric that the gate asks: the one given, else the task's own; None where the task has none.

    Args:
      task: the model's, under the data's name.
      metric: its name, or None.
      examples: what it would be taken of.

    Raises:
      UserError: the task has no such metric, or the examples have no labels.
    """
    known: tuple[str, ...] = ()
    if task is not None and task.kind == "classification":
        known = ("accuracy", "f1", "matthews") if len(task.labels) == 2 else ("accuracy", "matthews")
    elif task is not None and task.kind in ("multi_label", "regression", "span"):
        known = metrics.default_metrics(task)[0]
    if metric is None:
        return task_metrics(task)[1] if task is not None and known else None
    if metric not in known:
        kind = "a model without a task" if task is None else f"{task.kind} with {len(task.labels)} labels"
        raise UserError(f"the metric must be one of {', '.join(known) or 'none'} for {kind}; received {metric!r}")
    if examples is None or not are_labelled(examples):
        where = "no examples" if examples is None else f"{examples.source}, which has none"
        raise UserError(f"a metric needs labelled examples; received {metric} with {where}; give some, or leave it out")
    return metric


def _evenly(count: int, most: int) -> np.ndarray:
    """At most `most` of the indices below `count`, ascending, as far apart as they can be."""
    taken = min(count, most)
    return np.arange(taken) * count // taken


def as_pairs(examples: GivenExamples, most: int) -> Examples:
    """The first texts, or questions with their paragraphs, as a user of the bundle would give them."""
    if isinstance(examples, Examples):
        return examples.select(range(min(len(examples), most)))
    taken = list(itertools.islice(examples, most))
    return Examples(
        texts=[question.question for question in taken],
        pairs=[question.context for question in taken],
        labels=None,
        ids=[str(index) for index in range(len(taken))],
        source=examples.source,
    )
