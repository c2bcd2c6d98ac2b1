"""Converts start and end logits to answers, parts of the paragraph.

Source: google-research/bert `run_squad.py`, `write_predictions`; for unanswerable questions Devlin et al. 2019, section
4.3. Departures:

- All token pairs are scored. BERT pairs the 20 best starts with the 20 best ends, and so finds fewer answers or none.
  The best answer here scores at least as high.
- An answer's text is cut from the paragraph at its tokens' offsets. BERT aligns white-space words.
- The empty answer is not among the n best answers.
- Marks dropped by an uncased tokenizer stay with the letter before them.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert_runtime.windows import Windows

# BERT's (run_squad.py).
N_BEST = 20
MAX_ANSWER_TOKENS = 30
# Spans scored at once; bounds the memory to 16 MB for any paragraph.
_SPANS_AT_ONCE = 1 << 21

# First character, end (exclusive) and score.
_Span = tuple[int, int, float]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A part of the paragraph.

    Attributes:
      text: `paragraph[start:end]`.
      start: offset of the first code point.
      end: offset after the last code point.
      score: sum of start and end logit.
      probability: softmax over the n best answers and, if questions can be unanswerable, the empty answer.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A model's answers to one question.

    Attributes:
      answers: the n best answers with different texts, best first; empty only if the paragraph has no tokens.
      null_score: the empty answer's score: start plus end logit of [CLS], minimum over the windows.
    """

    answers: tuple[Answer, ...]
    null_score: float

    @property
    def best(self) -> Answer | None:
        """The best answer, regardless of the null score."""
        return self.answers[0] if self.answers else None

    @property
    def null_difference(self) -> float:
        """Null score minus the best answer's score; infinite without answers."""
        return self.null_score - self.answers[0].score if self.answers else math.inf

    def text(self, null_threshold: float | None) -> str:
        """Returns the answer's text, or "" for the empty answer.

        Args:
          null_threshold: the answer is empty if the null difference exceeds it; None to always answer.
        """
        if not self.answers or (null_threshold is not None and self.null_difference > null_threshold):
            return ""
        return self.answers[0].text


def answer_questions(
    contexts: Sequence[str],
    windows: Windows,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    *,
    n_best: int = N_BEST,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    with_null: bool,
) -> list[Answered]:
    """Finds the best answers to each question over all its windows.

    An answer starts at a paragraph token in the window with the most context for it, so no token counts twice. It ends
    in the same window and has at most `max_answer_tokens` tokens. The first answer in the text wins ties.

    Args:
      contexts: each question's paragraph.
      windows: W windows with T tokens, at least one per question.
      start_logits: float32 [T].
      end_logits: float32 [T].
      n_best: answers per question.
      max_answer_tokens: maximum answer length in tokens.
      with_null: include the empty answer in the probabilities.
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
        # The sort is stable, so ties keep the text's order.
        best = _distinct(context, sorted(best, key=lambda span: -span[2]), n_best)
        weights = _softmax([score for *_, score in best] + [null_score] * with_null)
        answers = tuple(
            Answer(text=context[start:stop], start=start, end=stop, score=score, probability=probability)
            for (start, stop, score), probability in zip(best, weights, strict=False)
        )
        answered.append(Answered(answers=answers, null_score=null_score))
        first_window = end_window
    return answered


def _parts(bounds: np.ndarray, most_tokens: int) -> Iterator[np.ndarray]:
    """Splits windows `bounds[w]:bounds[w + 1]` into runs with at least one window and about `most_tokens` tokens."""
    first = 0
    while first < len(bounds) - 1:
        behind = max(first + 1, int(np.searchsorted(bounds, bounds[first] + most_tokens, side="right")) - 1)
        yield bounds[first : behind + 1]
        first = behind


def _span_scores(
    windows: Windows, bounds: np.ndarray, start_logits: np.ndarray, end_logits: np.ndarray, max_answer_tokens: int
) -> np.ndarray:
    """Scores [S, L] for spans from token s to s + l in the windows between `bounds`; −∞ for invalid spans."""
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
    """The first `n_best` spans with different texts."""
    first_of: dict[str, _Span] = {}
    for span in spans:
        if len(first_of) == n_best:
            break
        first_of.setdefault(context[span[0] : span[1]], span)
    return [*first_of.values()]


def _best_first(scores: np.ndarray, count: int) -> Iterator[tuple[int, int, float]]:
    """Yields each span's first token, last token and score, best first. Sorts growing portions, from `count` on."""
    flat = scores.ravel()
    spans = np.flatnonzero(flat > -np.inf)
    values = flat[spans]
    filled = 0
    while filled < len(spans):
        count = min(2 * count, len(spans))
        least = np.partition(values, len(values) - count)[len(values) - count]
        portion = np.flatnonzero(values >= least)
        portion = portion[np.argsort(-values[portion], kind="stable")]
        for index in portion[filled:]:
            first, more = divmod(int(spans[index]), scores.shape[1])
            yield first, first + more, float(values[index])
        filled = count = len(portion)


def _behind_marks(context: str, end: int, char_starts: np.ndarray) -> int:
    """An answer's end, after marks on its last letter outside all tokens."""
    while end < len(context) and unicodedata.category(context[end]) == "Mn" and end not in char_starts:
        end += 1
    return end


def _softmax(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    weights = np.exp(np.asarray(scores) - max(scores))
    return (weights / weights.sum()).tolist()
