"""Question answering in training: windows as examples, and how good a model's answers are."""

from __future__ import annotations

import array
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.examples import Examples
from pocketbert.data.questions import Question, QuestionFile
from pocketbert.data.windows import WindowOptions, Windows, stream_windows
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.progress import bar, log_info
from pocketbert.tasks.answer_scores import AnswerScorer, mean_scores, squad_scorer
from pocketbert.tasks.answers import MAX_ANSWER_TOKENS, N_BEST, Answered, answer_questions, best_null_threshold
from pocketbert.training.evaluation import check_finite
from pocketbert.training.scores import Scores

# Start and end logits of all tokens of some windows, float32 `[T]` each.
WindowLogits = Callable[[Windows], tuple[np.ndarray, np.ndarray]]


def encode_questions(questions: QuestionFile, tokenizer: Any, options: WindowOptions) -> EncodedExamples:
    """Windows as training examples; of the file's text nothing stays in memory.

    Args:
      questions: labelled ones.
      tokenizer: the model's.
      options: how paragraphs are cut.

    Returns:
      A window an example; its label is int32 [2], the answer's first and last token, (0, 0) where it holds none.
    """
    # Of the windows only what training reads, so that characters' offsets go as they come.
    parts = [
        (windows.word_ids, windows.type_ids, np.diff(windows.offsets), windows.positions)
        for _, windows in stream_windows(questions, tokenizer, options, progress_total=len(questions))
    ]
    word_ids, type_ids, lengths, positions = map(np.concatenate, zip(*parts, strict=True))
    return EncodedExamples(
        word_ids=word_ids,
        type_ids=type_ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        labels=positions,
        max_length=options.max_length,
        pad_token_id=int(tokenizer.pad_token_id),
    )


def say_if_always_answered(train: Examples | QuestionFile, dev: Examples | QuestionFile) -> None:
    """Says so where a model learns that a question may have no answer, and nothing tells when to give none."""
    if not (isinstance(train, QuestionFile) and isinstance(dev, QuestionFile)):
        return
    if train.num_impossible and not dev.num_impossible:
        log_info(
            f"{train.num_impossible} of {len(train)} training questions have no answer, but none of the {len(dev)} "
            "development questions: they give no threshold, and the model will always answer; to leave questions "
            "unanswered, choose by development questions of both kinds"
        )


def read_answers(
    questions: Iterable[Question],
    tokenizer: Any,
    options: WindowOptions,
    logits_of: WindowLogits,
    *,
    with_null: bool,
    n_best: int = N_BEST,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    progress_total: int | None = None,
) -> Iterator[tuple[Question, Answered]]:
    """Answers questions one after another, a chunk of them in memory.

    Args:
      questions: in any number.
      tokenizer: the model's.
      options: how paragraphs are cut.
      logits_of: answers windows.
      with_null: whether a question may have no answer, which then takes part in the probabilities.
      n_best: the most answers a question.
      max_answer_tokens: the longest answer.
      progress_total: how many questions there are, for a bar; None shows none.

    Yields:
      Each question with its answers, in the order given.
    """
    with bar(progress_total, "answer", "question") if progress_total else contextlib.nullcontext() as progress:
        for chunk, windows in stream_windows(questions, tokenizer, options):
            start_logits, end_logits = logits_of(windows)
            answered = answer_questions(
                [question.context for question in chunk],
                windows,
                start_logits,
                end_logits,
                n_best=n_best,
                max_answer_tokens=max_answer_tokens,
                with_null=with_null,
            )
            yield from zip(chunk, answered, strict=True)
            if progress is not None:
                progress.update(len(chunk))


def model_logits(model: Model, batch_size: int) -> WindowLogits:
    """Answers windows with a model, those of about the same length together; traced once."""
    forward: Any = None

    def answer(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
        nonlocal forward
        encoded = as_examples(windows, model.config.max_position_embeddings, model.config.pad_token_id)
        plan = plan_batches(encoded.lengths, batch_size=batch_size, seed=0, epoch=0, shuffle=False)
        batches = dataset(encoded, plan)
        if forward is None:
            forward = tf.function(lambda inputs: model(inputs, training=False), input_signature=[batches.element_spec])
        logits = np.empty((2, len(windows.word_ids)), np.float32)
        for indices, inputs in zip(plan, batches, strict=True):
            outputs = forward(inputs)
            fill(logits, windows, indices, outputs["start_logits"].numpy(), outputs["end_logits"].numpy())
        return logits[0], logits[1]

    return answer


def as_examples(windows: Windows, max_length: int, pad_token_id: int) -> EncodedExamples:
    """Windows as examples without labels."""
    return EncodedExamples(
        word_ids=windows.word_ids,
        type_ids=windows.type_ids,
        offsets=windows.offsets,
        labels=None,
        max_length=max_length,
        pad_token_id=pad_token_id,
    )


def fill(logits: np.ndarray, windows: Windows, indices: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
    """Puts a batch's logits `[B, L]` at the places of its windows' tokens in `logits`, `[2, T]`."""
    for row, index in enumerate(indices):
        first, last = windows.offsets[index], windows.offsets[index + 1]
        logits[0, first:last] = start[row, : last - first]
        logits[1, first:last] = end[row, : last - first]


class QuestionScores:
    """Scores of answers, question by question; of each only six numbers are kept, 48 bytes.

    Args:
      scorer: how an answer is scored.
    """

    def __init__(self, scorer: AnswerScorer) -> None:
        self._scorer = scorer
        # Six a question.
        self._numbers = array.array("d")

    def add(self, question: Question, answered: Answered) -> None:
        """Takes in one labelled question."""
        scores = self._scorer(answered.text(None), question.answers)
        # Not always 0 where there is an answer: "A" is one of which SQuAD's scripts leave nothing.
        scores_of_none = self._scorer("", question.answers)
        self._numbers.extend((*scores, *scores_of_none, answered.null_difference, question.impossible))

    def best_threshold(self) -> float:
        """The threshold with the highest mean F1 (SQuAD 2.0's script: `best_f1_thresh`)."""
        _, f1, _, f1_of_none, leads, _ = self._columns()
        # A paragraph without words leaves no answer, and a lead that no file can hold.
        return best_null_threshold(np.minimum(leads, np.finfo(np.float32).max), f1, f1_of_none)[0]

    def scores(self, null_threshold: float | None) -> dict[str, float]:
        """As `pocketbert.tasks.answer_scores.mean_scores`.

        Args:
          null_threshold: as `TaskConfig.null_threshold`.
        """
        exact, f1, exact_of_none, f1_of_none, leads, impossible = self._columns()
        if null_threshold is not None:
            unanswered = leads > null_threshold
            exact, f1 = np.where(unanswered, exact_of_none, exact), np.where(unanswered, f1_of_none, f1)
        return mean_scores(exact, f1, impossible)

    def _columns(self) -> np.ndarray:
        """Exact match and F1 of the best answer and of none, how far none is ahead, whether there is none; [6, N]."""
        return np.frombuffer(self._numbers).reshape(-1, 6).T


def unanswered_baseline(questions: QuestionFile) -> dict[str, Any] | None:
    """What no answer to every question scores, for `pocketbert.training.scores.Scores`.

    Returns:
      None where every question has an answer.
    """
    if not questions.num_impossible:
        return None
    scorer = squad_scorer(True)
    exact, f1 = zip(*(scorer("", question.answers) for question in questions), strict=True)
    impossible = [question.impossible for question in questions]
    return {"answer": "always no answer", "metrics": mean_scores(exact, f1, impossible)}


class QuestionEvaluator:
    """Scores a span model, as often as it is asked to.

    Where a question may have no answer, the threshold for that is the one with the highest F1 on these questions, and
    the other scores are those at it; `task` then holds it.

    Args:
      model: the model; its weights may change between calls.
      questions: labelled ones.
      options: how paragraphs are cut.
      batch_size: windows a call of the model.
    """

    def __init__(
        self,
        model: Model,
        questions: QuestionFile,
        options: WindowOptions,
        batch_size: int,
    ) -> None:
        if model.tokenizer is None or model.task is None:
            raise UserError("answering questions needs a model with a vocabulary and a head; received one without")
        self._model, self._questions, self._options = model, questions, options
        self._logits = model_logits(model, batch_size)
        self.task: TaskConfig = model.task

    def metrics(self, when: str) -> dict[str, float]:
        """The metrics of the model as it is.

        Args:
          when: for the error's message, for example `after step 7`.

        Raises:
          TrainingFailed: an output is not finite.
        """
        with_null = self._questions.num_impossible > 0
        scores = QuestionScores(squad_scorer(with_null))
        for question, answered in read_answers(
            self._questions, self._model.tokenizer, self._options, self._checked(when), with_null=with_null
        ):
            scores.add(question, answered)
        threshold = scores.best_threshold() if with_null else None
        self.task = dataclasses.replace(self.task, null_threshold=threshold)
        return scores.scores(threshold)

    def scores(self, main_metric: str, metrics: Mapping[str, float]) -> Scores:
        """The metrics beside those of no answer to every question.

        Args:
          main_metric: the metric that counts most.
          metrics: what `metrics` gave for the same weights.
        """
        return Scores(main_metric=main_metric, metrics=metrics, baseline=unanswered_baseline(self._questions))

    def _checked(self, when: str) -> WindowLogits:
        def answer(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
            start, end = self._logits(windows)
            check_finite(when, start, end)
            return start, end

        return answer
