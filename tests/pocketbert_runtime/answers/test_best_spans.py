"""Answers from start and end logits, compared with answers found by hand or by trying all pairs."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from pocketbert_runtime.answers import best_spans
from pocketbert_runtime.answers.best_spans import Answer, Answered, answer_questions


@dataclass(frozen=True, eq=False)
class _Windows:
    offsets: np.ndarray
    question_index: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray
    most_context: np.ndarray


def _windows(rows: Sequence[tuple[int, int, Sequence[tuple[int, int]], Sequence[int]]]) -> _Windows:
    """Windows of (question, tokens before the paragraph, offsets of its tokens, which of them have most context)."""
    starts, ends, most, lengths = [], [], [], []
    for _, before, spans, flags in rows:
        lengths.append(before + len(spans) + 1)
        starts += [-1] * before + [start for start, _ in spans] + [-1]
        ends += [-1] * before + [end for _, end in spans] + [-1]
        most += [0] * before + list(flags) + [0]
    return _Windows(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.asarray([row[0] for row in rows], np.int64),
        np.asarray(starts, np.int32),
        np.asarray(ends, np.int32),
        np.asarray(most, bool),
    )


CONTEXT = "red  green blue"
WORDS = [(0, 3), (5, 10), (11, 15)]
ONE = _windows([(0, 3, WORDS, (1, 1, 1))])


def _logits(*values: float) -> np.ndarray:
    return np.asarray(values, np.float32)


def test_the_best_answer_is_the_paragraphs_own_text() -> None:
    # The question's tokens and the last [SEP] have the highest logits, and answer nothing.
    start = _logits(1, 9, 9, 4, 2, 0, 9)
    end = _logits(0.5, 9, 9, 0, 3, 1, 9)
    (answered,) = answer_questions([CONTEXT], ONE, start, end, n_best=4, with_null=False)
    assert [(answer.text, answer.start, answer.end, answer.score) for answer in answered.answers] == [
        ("red  green", 0, 10, 7.0),
        ("red  green blue", 0, 15, 5.0),
        ("green", 5, 10, 5.0),
        ("red", 0, 3, 4.0),
    ]
    weights = np.exp([7.0, 5.0, 5.0, 4.0])
    np.testing.assert_allclose([answer.probability for answer in answered.answers], weights / weights.sum(), rtol=1e-12)
    assert answered.best == answered.answers[0]
    assert (answered.null_score, answered.null_difference) == (1.5, -5.5)


def test_with_null_the_empty_answer_takes_its_share() -> None:
    start, end = _logits(1, 0, 0, 2, 0, 0, 0), _logits(1, 0, 0, 1, 0, 0, 0)
    (answered,) = answer_questions([CONTEXT], ONE, start, end, n_best=1, with_null=True)
    assert [answer.text for answer in answered.answers] == ["red"]
    assert answered.answers[0].probability == pytest.approx(math.e**3 / (math.e**3 + math.e**2), rel=1e-12)


@pytest.mark.parametrize(("most_tokens", "text"), [(1, "blue"), (2, "green blue"), (3, "red  green blue")])
def test_answers_are_no_longer_than_they_may_be(most_tokens: int, text: str) -> None:
    start, end = _logits(0, 0, 0, 3, 2, 1, 0), _logits(0, 0, 0, 0, 1, 5, 0)
    (answered,) = answer_questions([CONTEXT], ONE, start, end, max_answer_tokens=most_tokens, with_null=False)
    assert answered.best is not None and answered.best.text == text
    assert len(answered.answers) == {1: 3, 2: 5, 3: 6}[most_tokens]


def test_an_answer_never_reaches_into_the_next_window() -> None:
    # One token before the paragraph: [SEP], [CLS]-like and question tokens between windows are few.
    windows = _windows([(0, 1, WORDS[:2], (1, 1)), (0, 1, WORDS[1:], (0, 1)), (1, 1, WORDS, (1, 1, 1))])
    start = _logits(0, 9, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0)
    end = _logits(3, 0, 0, 0, 1, 0, 9, 0, 0, 0, 9, 0, 0)
    first, second = answer_questions([CONTEXT, CONTEXT], windows, start, end, n_best=2, with_null=True)
    assert [(answer.text, answer.score) for answer in first.answers] == [("red", 9.0), ("red  green", 9.0)]
    # Not the 11 of "green" in the second window: that token has its most context in the first.
    assert "blue" not in [answer.text for answer in first.answers]
    assert (first.null_score, second.null_score) == (2.0, 2.0)
    assert second.best is not None and (second.best.text, second.best.score) == ("red  green", 9.0)


def test_texts_are_not_repeated() -> None:
    context = "no no no yes"
    windows = _windows([(0, 2, [(0, 2), (3, 5), (6, 8), (9, 12)], (1, 1, 1, 1))])
    start, end = _logits(0, 0, 4, 5, 3, 0, 0), _logits(0, 0, 4, 4, 4, 0, 0)
    (answered,) = answer_questions([context], windows, start, end, n_best=9, max_answer_tokens=2, with_null=False)
    # 7 spans, "no" three times and "no no" twice: the best of each, with its own place.
    assert [(answer.text, answer.start, answer.score) for answer in answered.answers] == [
        ("no", 3, 9.0),
        ("no no", 3, 9.0),
        ("no yes", 6, 3.0),
        ("yes", 9, 0.0),
    ]


def test_enough_different_texts_are_found_among_many_equal_ones() -> None:
    words = 120
    context = "no " * words + "a b c d e"
    spans = [(3 * n, 3 * n + 2) for n in range(words)] + [(3 * words + 2 * n, 3 * words + 2 * n + 1) for n in range(5)]
    windows = _windows([(0, 2, spans, [1] * len(spans))])
    start = _logits(0, 0, *[9] * words, 1, 2, 3, 4, 5, 0)
    end = _logits(*[0] * len(start))
    (answered,) = answer_questions([context], windows, start, end, n_best=5, max_answer_tokens=1, with_null=False)
    assert [answer.text for answer in answered.answers] == ["no", "e", "d", "c", "b"]


def test_a_paragraph_without_tokens_has_no_answer() -> None:
    windows = _windows([(0, 3, [], []), (1, 2, WORDS, (1, 1, 1))])
    start = end = _logits(2, 0, 0, 0, 0, 0, 1, 0, 0, 0)
    empty, other = answer_questions(["", CONTEXT], windows, start, end, with_null=True)
    assert (empty.answers, empty.best, empty.null_score, empty.null_difference) == ((), None, 4.0, math.inf)
    assert (empty.text(None), empty.text(99.0)) == ("", "")
    assert other.text(None) == "red"
    assert answer_questions([], _windows([]), start[:0], end[:0], with_null=True) == []


@pytest.mark.parametrize(
    ("context", "tokens", "answer"),
    [
        # An uncased tokenizer drops marks, here one, two, at the end, and an emoji's.
        ("Beyonce\u0301 sang", [(0, 7), (9, 13)], "Beyonce\u0301"),
        ("Vie\u0323\u0302t", [(0, 3), (5, 6)], "Vie\u0323\u0302"),
        ("cafe\u0301", [(0, 4)], "cafe\u0301"),
        ("\u2764\ufe0f!", [(0, 1), (2, 3)], "\u2764\ufe0f"),
        # A cased one has them in a token of their own, which the answer leaves out.
        ("cafe\u0301s", [(0, 4), (4, 6)], "cafe"),
        # No mark, though no token has it either.
        ("cafe\u00ad", [(0, 4)], "cafe"),
    ],
)
def test_an_answer_keeps_the_marks_that_no_token_has(context: str, tokens: list[tuple[int, int]], answer: str) -> None:
    windows = _windows([(0, 2, tokens, [1] * len(tokens))])
    logits = _logits(0, 0, 9, *[0] * len(tokens))
    (answered,) = answer_questions([context], windows, logits, logits, with_null=False)
    assert answered.best is not None
    assert (answered.best.text, answered.best.end) == (answer, len(answer))


def test_the_threshold_decides_between_text_and_nothing() -> None:
    answer = Answer(text="red", start=0, end=3, score=4.0, probability=1.0)
    answered = Answered(answers=(answer,), null_score=6.5)
    assert answered.null_difference == 2.5
    assert [answered.text(threshold) for threshold in (None, 2.4, 2.5, 2.6)] == ["red", "", "red", "red"]


def _every_answer(
    context: str, windows: _Windows, question: int, start: np.ndarray, end: np.ndarray, most_tokens: int
) -> list[tuple[float, int, int, int]]:
    """(−score, window, first, last) of every span that run_squad.py's conditions let pass, without its cut to 20."""
    passed = []
    for w in np.flatnonzero(windows.question_index == question):
        begin, behind = windows.offsets[w : w + 2]
        for first in range(begin, behind):
            for last in range(begin, behind):
                if windows.char_starts[first] < 0 or windows.char_starts[last] < 0:
                    continue
                if not windows.most_context[first] or last < first or last - first + 1 > most_tokens:
                    continue
                passed.append((-(float(start[first]) + float(end[last])), int(w), first, last))
    return sorted(passed)


@pytest.mark.parametrize("spans_at_once", [1 << 21, 120, 1])
def test_the_search_finds_what_trying_every_pair_finds(spans_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # With 5 tokens a span: all windows at once, some two of them, one after the other.
    monkeypatch.setattr(best_spans, "_SPANS_AT_ONCE", spans_at_once)
    random = np.random.default_rng(5)
    contexts, rows = [], []
    for question in range(11):
        length = int(random.integers(1, 31))
        contexts.append(" ".join(random.choice(list("abcdefg"), length)))
        spans = [(2 * n, 2 * n + 1) for n in range(length)]
        for begin in range(0, length, 7):
            part = spans[begin : begin + 12]
            rows.append((question, int(random.integers(2, 6)), part, random.integers(0, 2, len(part)) | (begin == 0)))
    windows = _windows(rows)
    count = int(windows.offsets[-1])
    # Whole numbers: many scores are equal.
    start, end = (random.integers(-3, 4, count).astype(np.float32) for _ in range(2))
    actual = answer_questions(contexts, windows, start, end, n_best=6, max_answer_tokens=5, with_null=True)
    for question, (context, answered) in enumerate(zip(contexts, actual, strict=True)):
        expected: dict[str, tuple[float, int, int]] = {}
        for negative, _, first, last in _every_answer(context, windows, question, start, end, 5):
            begin, behind = int(windows.char_starts[first]), int(windows.char_ends[last])
            expected.setdefault(context[begin:behind], (-negative, begin, behind))
        best = list(expected.items())[:6]
        assert [(answer.text, (answer.score, answer.start, answer.end)) for answer in answered.answers] == best
        first_tokens = windows.offsets[:-1][windows.question_index == question]
        null = min(float(start[token]) + float(end[token]) for token in first_tokens)
        assert answered.null_score == null
        weights = np.exp(np.asarray([score for _, (score, *_) in best] + [null]))
        # Double precision, sums of seven.
        np.testing.assert_allclose(
            [answer.probability for answer in answered.answers], (weights / weights.sum())[:-1], rtol=1e-13
        )


def test_a_very_long_paragraph_is_weighed_in_parts() -> None:
    length, room = 600_000, 300
    context = "x" * length
    bounds = np.arange(0, length + 1, room)
    positions = np.arange(length) % room
    inside = (positions > 1) & (positions < room - 1)
    windows = _Windows(
        bounds,
        np.zeros(len(bounds) - 1, np.int64),
        np.where(inside, np.arange(length), -1).astype(np.int32),
        np.where(inside, np.arange(length) + 1, -1).astype(np.int32),
        inside,
    )
    start, end = np.random.default_rng(3).normal(size=(2, length)).astype(np.float32)
    start[length // 2 + 7] = end[length // 2 + 9] = 9.0
    tracemalloc.start()
    try:
        (answered,) = answer_questions([context], windows, start, end, n_best=1, with_null=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answered.best is not None and (answered.best.start, answered.best.end) == (length // 2 + 7, length // 2 + 10)
    # All spans at once are 600,000 · 30 float64, 144 MB, several times over; a part's are 16 MB.
    assert peak < 120e6
