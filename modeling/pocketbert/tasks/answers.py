"""From start and end logits to answers: parts of the paragraph, as they stand there.

Source: google-research/bert `run_squad.py`, `write_predictions`; for questions without an answer, Devlin et al. 2019,
section 4.3. Departures: every pair of tokens is weighed, where BERT pairs the 20 best starts with the 20 best ends (and
then finds fewer answers, or none), so a best answer here scores at least as high; an answer's text is cut out of the
paragraph at its tokens' offsets, where BERT aligns white-space words; the empty answer stands beside the n best, not
among them; marks that an uncased tokenizer drops stay with the letter before them.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

# BERT's (run_squad.py).
N_BEST = 20
MAX_ANSWER_TOKENS = 30
# Spans weighed at once: 16 MB, however long a paragraph is.
_SPANS_AT_ONCE = 1 << 21
# How far a threshold keeps from the differences that it lets pass, where there is room: far more than a batch's shape
# changes in a logit.
_MOST_MARGIN = 1.0

# First character, the place behind the last, and the score.
_Span = tuple[int, int, float]


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
      max_answer_tokens: tokens.
      with_null: probabilities share with the empty answer.
    """
    question_ends = np.searchsorted(windows.question_index, np.arange(len(contexts)), side="right")
    answered = []
    first_window = 0
    for context, end_window in zip(contexts, question_ends, strict=True):
        bounds = windows.offsets[first_window : end_window + 1]
        cls = bounds[:-1]
        null_score = float((start_logits[cls].astype(np.float64) + end_logits[cls]).min())
        char_starts = windows.char_starts[bounds[0] : bounds[-1]]
        best: list[_Span] = []
        for part in _parts(bounds, _SPANS_AT_ONCE // max_answer_tokens):
            scores = _span_scores(windows, part, start_logits, end_logits, max_answer_tokens)
            spans = (
                (
                    int(windows.char_starts[part[0] + first]),
                    _behind_marks(context, int(windows.char_ends[part[0] + last]), char_starts),
                    score,
                )
                for first, last, score in _best_first(scores, n_best)
            )
            best += _distinct(context, spans, n_best)
        # A stable sort: of equal scores the first in the text stays first.
        best = _distinct(context, sorted(best, key=lambda span: -span[2]), n_best)
        weights = _softmax([score for *_, score in best] + [null_score] * with_null)
        answers = tuple(
            Answer(text=context[start:stop], start=start, end=stop, score=score, probability=probability)
            for (start, stop, score), probability in zip(best, weights, strict=False)
        )
        answered.append(Answered(answers=answers, null_score=null_score))
        first_window = end_window
    return answered


def best_null_threshold(
    null_differences: Sequence[float] | np.ndarray,
    scores_if_answered: Sequence[float] | np.ndarray,
    scores_if_not: Sequence[float] | np.ndarray,
) -> tuple[float, float]:
    """The threshold that scores best on development questions.

    Source: `find_best_thresh` of SQuAD 2.0's evaluation script. Departures: questions with equal differences go to the
    same side, as every threshold sends them; what an answer gains is what it scores above none, where the script takes
    one off for any answer to an impossible question and knows no score without an answer to others (which "A" as the
    only right answer has); the threshold lies between two questions, and not on one, so that rounding moves none over
    it; where never to answer is best, it lies below all differences, where the script says 0.

    Args:
      null_differences: [N], `Answered.null_difference`; at least one.
      scores_if_answered: [N], exact match or F1 of the best answer.
      scores_if_not: [N], scores of no answer.

    Returns:
      The middle between the greatest null difference that still answers (of equally good ones the least) and the next,
      at most 1 above the former, and 1 below all where none does; and the mean score with it.
    """
    differences = np.asarray(null_differences, np.float64)
    answered, unanswered = np.asarray(scores_if_answered, np.float64), np.asarray(scores_if_not, np.float64)
    order = np.argsort(differences, kind="stable")
    totals = unanswered.sum() + np.concatenate([[0.0], np.cumsum((answered - unanswered)[order])])
    ordered = differences[order]
    # Behind the last of equal differences, and before all.
    possible = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > 0, [True]]))
    best = possible[np.argmax(totals[possible])]
    below = ordered[best - 1] if best else -np.inf
    above = ordered[best] if best < len(ordered) else np.inf
    return _between(below, above), float(totals[best] / len(ordered))


def _between(below: float, above: float) -> float:
    """A threshold that the one difference reaches and the other does not; one of the two may be infinite."""
    if below == -np.inf:
        return float(above - _MOST_MARGIN)
    # Two neighbours among numbers have no middle.
    return float(min(below + min((above - below) / 2, _MOST_MARGIN), np.nextafter(above, -np.inf)))


def _parts(bounds: np.ndarray, most_tokens: int) -> Iterator[np.ndarray]:
    """Cuts windows, `bounds[w]:bounds[w + 1]`, into runs of windows with about so many tokens, at least one a run."""
    first = 0
    while first < len(bounds) - 1:
        behind = max(first + 1, int(np.searchsorted(bounds, bounds[first] + most_tokens, side="right")) - 1)
        yield bounds[first : behind + 1]
        first = behind


def _span_scores(
    windows: WindowsLike, bounds: np.ndarray, start_logits: np.ndarray, end_logits: np.ndarray, max_answer_tokens: int
) -> np.ndarray:
    """Scores [S, L] of the spans from token s to token s + l of the windows between `bounds`, −∞ where that is none."""
    tokens = slice(bounds[0], bounds[-1])
    ends = np.where(windows.char_starts[tokens] >= 0, end_logits[tokens].astype(np.float64), -np.inf)
    band = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([ends, np.full(max_answer_tokens - 1, -np.inf)]), max_answer_tokens
    )
    starts = np.where(windows.most_context[tokens], start_logits[tokens].astype(np.float64), -np.inf)
    scores = starts[:, np.newaxis] + band
    left_in_window = np.repeat(bounds[1:], np.diff(bounds)) - np.arange(bounds[0], bounds[-1])
    scores[np.arange(max_answer_tokens) >= left_in_window[:, np.newaxis]] = -np.inf
    return scores


def _distinct(context: str, spans: Iterable[_Span], n_best: int) -> list[_Span]:
    """The first `n_best` whose texts differ."""
    first_of: dict[str, _Span] = {}
    for span in spans:
        if len(first_of) == n_best:
            break
        first_of.setdefault(context[span[0] : span[1]], span)
    return [*first_of.values()]


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


def _behind_marks(context: str, end: int, char_starts: np.ndarray) -> int:
    """Where an answer ends, with the marks on its last letter that are no token's."""
    while end < len(context) and unicodedata.category(context[end]) == "Mn" and end not in char_starts:
        end += 1
    return end


def _softmax(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    weights = np.exp(np.asarray(scores) - max(scores))
    return (weights / weights.sum()).tolist()
