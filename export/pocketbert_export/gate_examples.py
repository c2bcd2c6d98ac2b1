"""What the gate asks a bundle: real texts or questions as rows of tokens, and the task's metric of the answers."""

from __future__ import annotations

import abc
import itertools
from typing import TypeAlias

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.questions import Question, QuestionFile
from pocketbert.data.windows import WindowOptions, make_windows, stream_windows
from pocketbert.encoder import INPUT_NAMES
from pocketbert.tasks import metrics
from pocketbert.tasks.answer_scores import squad_scorer
from pocketbert.tasks.answers import answer_questions
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.question_answering import QuestionScores, as_examples
from pocketbert_export.checks import Outputs
from pocketbert_export.placement import Inputs
from pocketbert_export.predictors import predictions_of

# int8 changes about one answer in a hundred, one way or the other. On 3,000 examples the 30 changes leave a standard
# error of 30 ** 0.5 / 3000 = 0.2 points, which half a point stands out of; on 850 it is as large as the bound.
MOST_EXAMPLES = 3000

GivenExamples: TypeAlias = Examples | QuestionFile


class GateExamples(abc.ABC):
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
    def score(self, task: TaskConfig, name: str, outputs: Outputs, order: np.ndarray) -> float:
        """The metric of some answers, as a part of 1.

        Args:
          task: what the outputs mean.
          name: the metric's.
          outputs: by name, row after row without padding.
          order: `[n]`, which row each is.
        """


class TextExamples(GateExamples):
    """Sentences or pairs.

    Args:
      examples: the first `MOST_EXAMPLES` are taken.
      tokenizer: the bundle's.
      length: the bundle's longest.
    """

    def __init__(self, examples: Examples, tokenizer: WordPieceTokenizer, length: int) -> None:
        taken = examples.select(range(min(len(examples), MOST_EXAMPLES)))
        encoded = tokenizer(taken.texts, taken.pairs, max_length=length)
        self.encoded = {name: np.asarray(encoded[name]) for name in INPUT_NAMES}
        self.count, self.source, self.labelled = len(taken), taken.source, taken.labels is not None
        self._labels = taken.labels

    def score(self, task: TaskConfig, name: str, outputs: Outputs, order: np.ndarray) -> float:
        """As `GateExamples`."""
        assert self._labels is not None
        return metrics.compute([name], self._labels[order], predictions_of(task, outputs["logits"]))[name]


class QuestionExamples(GateExamples):
    """Questions, a row for each window of their paragraphs.

    Args:
      questions: so many of the first are taken that they have about `MOST_EXAMPLES` windows.
      tokenizer: the bundle's.
      length: the bundle's longest.
    """

    def __init__(self, questions: QuestionFile, tokenizer: WordPieceTokenizer, length: int) -> None:
        options = WindowOptions(max_length=length)
        self._questions: list[Question] = []
        rows = 0
        for chunk, windows in stream_windows(questions, tokenizer, options, questions_a_chunk=64):
            self._questions += chunk
            rows += len(windows)
            if rows >= MOST_EXAMPLES:
                break
        self._windows = make_windows(self._questions, tokenizer, options)
        rows_of_all = as_examples(self._windows, length, tokenizer.pad_token_id)
        self.encoded, _ = rows_of_all.batch(np.arange(len(self._windows)))
        self.count, self.source = len(self._questions), questions.source
        self.labelled = questions.labelled

    def score(self, task: TaskConfig, name: str, outputs: Outputs, order: np.ndarray) -> float:
        """As `GateExamples`; a threshold for questions without an answer is the task's."""
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
        scores = QuestionScores(squad_scorer(any(question.impossible for question in self._questions)))
        for question, found in zip(self._questions, answered, strict=True):
            scores.add(question, found)
        return scores.scores(task.null_threshold)[name]


def gate_examples(examples: GivenExamples, tokenizer: WordPieceTokenizer, length: int) -> GateExamples:
    """What the gate asks of texts or questions; see the two classes."""
    kind = QuestionExamples if isinstance(examples, QuestionFile) else TextExamples
    return kind(examples, tokenizer, length)  # type: ignore[arg-type]


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
