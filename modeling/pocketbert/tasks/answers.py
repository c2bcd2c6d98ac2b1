"""From start and end logits to answers: parts of the paragraph, as they stand there.

Source: google-research/bert `run_squad.py`, `write_predictions`; for questions without an answer, Devlin et al. 2019,
section 4.3. Departures: every pair of tokens is weighed, where BERT pairs the 20 best starts with the 20 best ends (and
then finds fewer answers, or none), so a best answer here scores at least as high; an answer's text is cut out of the
paragraph at its tokens' offsets, where BERT aligns white-space words; the empty answer stands beside the n best, not
among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

# BERT's (run_squad.py).
N_BEST = 20
MAX_ANSWER_TOKENS = 30


class WindowsLike(Protocol):
    """What is read of `pocketbert.data.windows.Windows`, which documents it."""

    @property
    def offsets(self) -> np.ndarray:
        """int64 [W+1]."""

    @property
    def question_index(self) -> np.ndarray:
        """int64 [W], ascending."""

    @property
    def char_starts(self) -> np.ndarray:
        """int32 [T]."""

    @property
    def char_ends(self) -> np.ndarray:
        """int32 [T]."""

    @property
    def most_context(self) -> np.ndarray:
        """Bool [T]."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A part of the paragraph.

    Attributes:
      text: the characters themselves, `paragraph[start:end]`.
      start: offset of the first code point.
      end: offset behind the last.
      score: start logit and end logit added.
      probability: among the n best answers, and the empty one where questions may have none.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a model says to one question.

    Attributes:
      answers: the n best, best first, no text twice; empty only if the paragraph has no tokens.
      null_score: of saying that there is no answer: start and end logit of [CLS] added, the least of all windows.
    """

    answers: tuple[Answer, ...]
    null_score: float

    @property
    def best(self) -> Answer | None:
        """The best answer, whatever the null score."""
        return self.answers[0] if self.answers else None

    @property
    def null_difference(self) -> float:
        """How far the null score is above the best answer's; infinite if there is none."""
        return self.null_score - self.answers[0].score if self.answers else math.inf

    def text(self, null_threshold: float | None) -> str:
        """The answer's text, or "" for none.

        Args:
          null_threshold: a null difference above it means that there is no answer; None: always answers.
        """
        if not self.answers or (null_threshold is not None and self.null_difference > null_threshold):
            return ""
        return self.answers[0].text


def answer_questions(
    contexts: Sequence[str],
    windows: WindowsLike,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    *,
    n_best: int = N_BEST,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    with_null: bool,
) -> list[Answered]:
    """Finds the best answers of each question over all of its windows.

    An answer begins at a token of the paragraph that has its most context there (so that none is weighed twice), and
    ends in the same window, at most `max_answer_tokens` long. Of equal scores the first in the text comes first.

    Args:
      contexts: the paragraph of each question.
      windows: W windows with T tokens; every question has at least one.
      start_logits: float32 [T].
      end_logits: float32 [T].
      n_best: how many answers a question.
      max_answer_tokens: pieces.
      with_null: probabilities share with the empty answer.
    """
    question_ends = np.searchsorted(windows.question_index, np.arange(len(contexts)), side="right")
    answered = []
    first_window = 0
    for context, end_window in zip(contexts, question_ends, strict=True):
        window_ends = windows.offsets[first_window + 1 : end_window + 1]
        begin, end = windows.offsets[first_window], windows.offsets[end_window]
        tokens = slice(begin, end)
        scores = _span_scores(
            start_logits[tokens].astype(np.float64),
            end_logits[tokens].astype(np.float64),
            windows.most_context[tokens],
            windows.char_starts[tokens] >= 0,
            np.repeat(window_ends - begin, np.diff(window_ends, prepend=begin)),
            max_answer_tokens,
        )
        cls = windows.offsets[first_window:end_window]
        null_score = float((start_logits[cls].astype(np.float64) + end_logits[cls]).min())
        spans = _distinct(context, scores, windows.char_starts[tokens], windows.char_ends[tokens], n_best)
        weights = _softmax([score for *_, score in spans] + [null_score] * with_null)
        answers = tuple(
            Answer(text=context[start:stop], start=start, end=stop, score=score, probability=probability)
            for (start, stop, score), probability in zip(spans, weights, strict=False)
        )
        answered.append(Answered(answers=answers, null_score=null_score))
        first_window = end_window
    return answered


def best_null_threshold(
    null_differences: Sequence[float] | np.ndarray,
    scores_if_answered: Sequence[float] | np.ndarray,
    is_impossible: Sequence[bool] | np.ndarray,
) -> tuple[float, float]:
    """The threshold that scores best on development questions.

    Source: `find_best_thresh` of SQuAD 2.0's evaluation script. Departures: questions with equal differences go to the
    same side, as every threshold sends them; where never to answer is best, the threshold lies just below all
    differences, where the script says 0.

    Args:
      null_differences: [N], `Answered.null_difference`; at least one.
      scores_if_answered: [N], exact match or F1 of the best answer; of impossible questions not read.
      is_impossible: [N].

    Returns:
      The greatest null difference that still answers (of equally good ones the least), and the mean score with it.
    """
    differences, scores = np.asarray(null_differences, np.float64), np.asarray(scores_if_answered, np.float64)
    impossible = np.asarray(is_impossible, bool)
    order = np.argsort(differences, kind="stable")
    gains = np.where(impossible, -1.0, scores)[order]
    totals = impossible.sum() + np.concatenate([[0.0], np.cumsum(gains)])
    ordered = differences[order]
    # Behind the last of equal differences, and before all.
    possible = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > 0, [True]]))
    best = possible[np.argmax(totals[possible])]
    threshold = ordered[best - 1] if best else np.nextafter(ordered[0], -np.inf)
    return float(threshold), float(totals[best] / len(ordered))


def _span_scores(
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    may_start: np.ndarray,
    in_paragraph: np.ndarray,
    window_end: np.ndarray,
    max_answer_tokens: int,
) -> np.ndarray:
    """Scores [S, L] of the spans from token s to token s + l, −∞ where that is none; everything is [S] else."""
    ends = np.where(in_paragraph, end_logits, -np.inf)
    band = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([ends, np.full(max_answer_tokens - 1, -np.inf)]), max_answer_tokens
    )
    scores = np.where(may_start, start_logits, -np.inf)[:, np.newaxis] + band
    scores[np.arange(max_answer_tokens) >= (window_end - np.arange(len(ends)))[:, np.newaxis]] = -np.inf
    return scores


def _distinct(
    context: str, scores: np.ndarray, char_starts: np.ndarray, char_ends: np.ndarray, n_best: int
) -> list[tuple[int, int, float]]:
    """Starts, ends and scores of the best spans whose texts differ."""
    spans: list[tuple[int, int, float]] = []
    texts: set[str] = set()
    for first, last, score in _best_first(scores, n_best):
        start, end = int(char_starts[first]), int(char_ends[last])
        if context[start:end] not in texts:
            texts.add(context[start:end])
            spans.append((start, end, score))
            if len(spans) == n_best:
                break
    return spans


def _best_first(scores: np.ndarray, count: int) -> Iterator[tuple[int, int, float]]:
    """First token, last token and score of all spans, best first; sorted in portions that begin with `count`."""
    flat = scores.ravel()
    spans = np.flatnonzero(flat > -np.inf)
    values = flat[spans]
    given = 0
    while given < len(spans):
        count = min(2 * count, len(spans))
        least = np.partition(values, len(values) - count)[len(values) - count]
        portion = np.flatnonzero(values >= least)
        portion = portion[np.argsort(-values[portion], kind="stable")]
        for index in portion[given:]:
            first, more = divmod(int(spans[index]), scores.shape[1])
            yield first, first + more, float(values[index])
        given = count = len(portion)


def _softmax(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    weights = np.exp(np.asarray(scores) - max(scores))
    return (weights / weights.sum()).tolist()
