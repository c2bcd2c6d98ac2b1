"""Spans of tags, compared with seqeval, and words of texts."""

from __future__ import annotations

import random

from seqeval.metrics.sequence_labeling import get_entities

from pocketbert_runtime.answers.tags import WordSpan, iob2, spans_of
from pocketbert_runtime.answers.words import split_words


def test_spans_are_those_of_seqeval() -> None:
    draw = random.Random(17)
    tags = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("LOC", "PER", "A-B"))]
    spans = 0
    for _ in range(2_000):
        sentence = draw.choices(tags, k=draw.randint(0, 9))
        expected = [(first, last, label) for label, first, last in get_entities(list(sentence))]
        assert spans_of(sentence) == expected, sentence
        spans += len(expected)
    assert spans > 5_000


def test_spans_survive_as_iob2() -> None:
    spans = [WordSpan(0, 0, "LOC"), WordSpan(1, 3, "LOC"), WordSpan(5, 6, "PER")]
    assert iob2(spans, 8) == ["B-LOC", "B-LOC", "I-LOC", "I-LOC", "O", "B-PER", "I-PER", "O"]
    assert spans_of(iob2(spans, 8)) == spans


def test_words_of_scripts_without_spaces_are_characters() -> None:
    text = "don't  東京 ไทย \ud800a"
    words = [text[start:end] for start, end in split_words(text)]
    assert words == ["don", "'", "t", "東", "京", "ไ", "ท", "ย", "\ud800a"]
    assert split_words("").shape == (0, 2)
