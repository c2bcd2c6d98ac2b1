"""Question answering: windows as token rows, answers and their scores."""

from __future__ import annotations

import array
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import evenly
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.tasks.answer_scores import AnswerScorer, best_null_threshold, mean_scores, squad_scorer
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake, excerpt, most_certain
from pocketbert.tasks.outputs import check_finite
from pocketbert.tasks.scores import Scores, score_interval
from pocketbert_runtime.answers.best_spans import MAX_ANSWER_TOKENS, Answered, answer_questions
from pocketbert_runtime.answers.span import read_answers, rows_of
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.windows import Question, WindowOptions, make_windows, stream_windows


def encode_questions(questions: QuestionFile, tokenizer: Any, options: WindowOptions) -> EncodedExamples:
    """Encodes windows without keeping their text in memory.

    Each window's label is int32 [2], the answer's first and last token, or (0, 0) without an answer.
    """
    # Keep only the arrays that training reads; drop the character offsets.
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


class QuestionScores:
    """Scores answers question by question. Stores six numbers (48 bytes) per question."""

    def __init__(self, scorer: AnswerScorer) -> None:
        self._scorer = scorer
        self._numbers = array.array("d")

    def add(self, question: Question, answered: Answered) -> None:
        """Adds one labelled question."""
        scores = self._scorer(answered.text(None), question.answers)
        # Not always 0 for answerable questions: SQuAD's scripts reduce the answer "A" to nothing.
        scores_of_none = self._scorer("", question.answers)
        self._numbers.extend((*scores, *scores_of_none, answered.null_difference, question.impossible))

    def best_threshold(self) -> float:
        """The threshold with the highest mean F1 (`best_f1_thresh` in SQuAD 2.0's script)."""
        _, f1, _, f1_of_none, leads, _ = self._columns()
        # A paragraph without words has no answer and an infinite lead, which JSON cannot hold.
        return best_null_threshold(np.minimum(leads, np.finfo(np.float32).max), f1, f1_of_none)[0]

    def scores(self, null_threshold: float | None) -> dict[str, float]:
        """Scores all questions; see `answer_scores.mean_scores`.

        Args:
          null_threshold: see `TaskConfig.null_threshold`.
        """
        *_, impossible = self._columns()
        return mean_scores(*self.of_each_question(null_threshold), impossible)

    def of_each_question(self, null_threshold: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Exact match and F1 per question [N] at a threshold; see `scores`."""
        exact, f1, exact_of_none, f1_of_none, leads, _ = self._columns()
        if null_threshold is None:
            return exact, f1
        unanswered = leads > null_threshold
        return np.where(unanswered, exact_of_none, exact), np.where(unanswered, f1_of_none, f1)

    @property
    def leads(self) -> np.ndarray:
        """The empty answer's lead over the best answer per question, [N]."""
        leads: np.ndarray = self._columns()[4]
        return leads

    def _columns(self) -> np.ndarray:
        """[6, N]: exact match and F1 for the best and the empty answer, the empty answer's lead, is_impossible."""
        return np.frombuffer(self._numbers).reshape(-1, 6).T


# Answers without the question: name → part of the paragraph.
_RULES: dict[str, Callable[[str], str]] = {
    "always no answer": lambda context: "",
    "always the first sentence": lambda context: re.split(r"(?<=[.!?。])\s+", context.strip())[0],
    "always the first five words": lambda context: " ".join(context.split()[:5]),
    "always the whole paragraph": lambda context: context,
}


def constant_rule(questions: QuestionFile) -> dict[str, Any]:
    """Scores the best answer without reading the question, for `Scores.baseline`."""
    scorer, rows = squad_scorer(questions.num_impossible > 0), list(questions)
    impossible = [question.impossible for question in rows]
    by_rule = {}
    for name, rule in _RULES.items():
        exact, f1 = zip(*(scorer(rule(question.context), question.answers) for question in rows), strict=True)
        by_rule[name] = mean_scores(exact, f1, impossible)
    best = max(by_rule, key=lambda name: by_rule[name]["f1"])
    return {"answer": best, "metrics": by_rule[best]}


class QuestionRows:
    """Questions as rows, one row per paragraph window.

    Args:
      task: a span task; `null_threshold` decides which questions stay unanswered.
      data: labelled or unlabelled questions.
      tokenizer: the network's tokenizer.
      options: window options.
      most: approximate maximum number of windows, from evenly taken questions; None for all.
    """

    def __init__(
        self, task: TaskConfig, data: QuestionFile, tokenizer: Any, options: WindowOptions, most: int | None = None
    ) -> None:
        taken = data
        if most is not None:
            taken = data.select(evenly(len(data), most))
            rows = sum(len(part) for _, part in stream_windows(taken, tokenizer, options))
            taken = taken.select(evenly(len(taken), max(1, len(taken) * most // rows)))
        self._task, self._questions = task, [*taken]
        self._windows = make_windows(self._questions, tokenizer, options)
        self.encoded = EncodedExamples.of(rows_of(self._windows, options.max_length, tokenizer.pad_token_id))
        self._scorer = squad_scorer(data.num_impossible > 0)
        self.decided = None

    def __len__(self) -> int:
        return len(self._questions)

    def score(self, outputs: Outputs, metric: str) -> tuple[float, np.ndarray | None]:
        """See `Rows.score`. With F1, an answer can be partly correct."""
        scores, threshold = self._scores(outputs), self._task.null_threshold
        return scores.scores(threshold)[metric], self._of_each(scores, metric)

    def resampled(self, outputs: Outputs, metric: str) -> Callable[[np.ndarray], float]:
        """See `Rows.resampled`."""
        scores = self._of_each(self._scores(outputs), metric)
        return lambda indices: float(scores[indices].mean())

    def _of_each(self, scores: QuestionScores, metric: str) -> np.ndarray:
        exact, f1 = scores.of_each_question(self._task.null_threshold)
        return f1 if metric == "f1" else exact

    def _scores(self, outputs: Outputs) -> QuestionScores:
        threshold = self._task.null_threshold
        answered = answer_questions(
            [question.context for question in self._questions],
            self._windows,
            outputs["start_logits"],
            outputs["end_logits"],
            with_null=threshold is not None,
        )
        scores = QuestionScores(self._scorer)
        for question, answer in zip(self._questions, answered, strict=True):
            scores.add(question, answer)
        return scores


class QuestionEvaluator:
    """Scores a network's answers; see `SupervisedTask.evaluator`.

    `choose_threshold` selects the null threshold with the highest F1 on these questions. `task` holds it after an
    evaluation, and all scores use it.

    Args:
      task: a span task.
      forward: runs the network.
      questions: labelled questions.
      tokenizer: the network's tokenizer.
      options: window options.
      choose_threshold: choose the null threshold instead of using the task's.
      scorer: scores one answer; None for SQuAD 2.0's script if some questions have no answer, else SQuAD 1.1's.
      max_answer_tokens: maximum answer length.
      keep_answers: keep `answers`; the ids must then be unique (`QuestionFile.check_ids`).
      show_progress: print progress to stderr.
    """

    def __init__(
        self,
        task: TaskConfig,
        forward: Forward,
        questions: QuestionFile,
        tokenizer: Any,
        options: WindowOptions,
        *,
        choose_threshold: bool = False,
        scorer: AnswerScorer | None = None,
        max_answer_tokens: int = MAX_ANSWER_TOKENS,
        keep_answers: bool = False,
        show_progress: bool = False,
    ) -> None:
        self.task, self._keep_answers = task, keep_answers
        self._forward, self._questions, self._tokenizer, self._options = forward, questions, tokenizer, options
        self._choose_threshold, self._max_answer_tokens = choose_threshold, max_answer_tokens
        self._scorer = scorer or squad_scorer(questions.num_impossible > 0)
        self._show_progress = show_progress
        self._answers_by_id: dict[str, Answered] = {}
        self._last: QuestionScores | None = None
        # Per question: the best answer, its probability, and the empty answer's.
        self._best: list[tuple[str, float, float]] = []

    def metrics(self, when: str) -> dict[str, float]:
        """See `Evaluator.metrics`."""
        with_null = (
            self._questions.num_impossible > 0 if self._choose_threshold else self.task.null_threshold is not None
        )
        self._last = scores = QuestionScores(self._scorer)
        answers = read_answers(
            self._questions,
            self._tokenizer,
            self._options,
            lambda encoded: check_finite(when, self._forward(encoded)),
            with_null=with_null,
            max_answer_tokens=self._max_answer_tokens,
            progress_total=len(self._questions) if self._show_progress else None,
        )
        self._answers_by_id.clear()
        self._best.clear()
        for question, answered in answers:
            scores.add(question, answered)
            best, none = answered.best, 1 - sum(answer.probability for answer in answered.answers)
            self._best.append((best.text, best.probability, none) if best else ("", 0.0, none))
            if self._keep_answers:
                self._answers_by_id[question.id] = answered
        if self._choose_threshold:
            threshold = scores.best_threshold() if with_null else None
            self.task = dataclasses.replace(self.task, null_threshold=threshold)
        return scores.scores(self.task.null_threshold)

    @property
    def answers(self) -> dict[str, str]:
        """Question id → answer in the last evaluation, with `keep_answers`."""
        return {name: answered.text(self.task.null_threshold) for name, answered in self._answers_by_id.items()}

    def mistakes(self, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """See `Evaluator.mistakes`. Answers with a word from a right one are not wrong."""
        assert self._last is not None
        threshold = self.task.null_threshold
        _, f1 = self._last.of_each_question(threshold)
        empty = np.zeros(len(f1), bool) if threshold is None else self._last.leads > threshold
        answers = [
            ("", none) if is_empty else (text, probability)
            for (text, probability, none), is_empty in zip(self._best, empty, strict=True)
        ]
        places = most_certain(f1 == 0, np.array([probability for _, probability in answers]), most)
        mistakes = []
        # A file gives questions in its own order.
        questions = dict(zip(sorted(places), self._questions.select(places), strict=True))
        for position in places:
            question, (text, probability) = questions[position], answers[position]
            start = question.starts[0] if question.starts else max(question.context.find(text), 0)
            length = len(question.answers[0]) if question.answers else len(text)
            mistakes.append(
                Mistake(
                    index=position,
                    text=question.question,
                    pair=excerpt(question.context, start, start + length),
                    label=" / ".join(dict.fromkeys(question.answers)) or "no answer",
                    prediction=text or "no answer",
                    probability=probability,
                )
            )
        return mistakes

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """See `Evaluator.scores`. The baseline does not read the question."""
        main, values = main_metric or "f1", self.metrics("at the end")
        assert self._last is not None
        exact, f1 = self._last.of_each_question(self.task.null_threshold)
        scores = exact if main == "exact_match" else f1
        return Scores(
            main_metric=main,
            metrics=values if metrics is None else metrics,
            baseline=constant_rule(self._questions),
            examples=len(self._questions),
            interval=score_interval(len(scores), lambda indices: float(scores[indices].mean())),
        )
