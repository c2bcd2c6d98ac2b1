"""Writes labelled examples to files; the readers make the same examples from them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.examples import Examples, LabelledData
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.readers.soft_labels import PROBABILITIES
from pocketbert.data.readers.tagged_texts import TaggedTexts
from pocketbert.files import write_text
from pocketbert_runtime.answers.tags import spans_of
from pocketbert_runtime.windows import Question


def write_examples(examples: LabelledData, labels: Sequence[str], stem: Path) -> Path:
    """Writes labelled examples.

    Args:
      examples: the examples. Groups are not written.
      labels: class or label names.
      stem: path without an extension.
    Returns:
      The file: a table `.jsonl` with the columns text, pair, negative, label and probabilities; questions as `.json`;
      spans as `.conll` if their texts are words between spaces and have no soft labels, otherwise `.jsonl`.
    """
    lines: Iterable[str]
    if isinstance(examples, QuestionFile):
        suffix, lines = ".json", [json.dumps(_questions(examples), ensure_ascii=False)]
    elif isinstance(examples, TaggedTexts):
        spaced = examples.soft_labels is None and _is_spaced(examples)
        suffix, lines = (".conll", _conll(examples)) if spaced else (".jsonl", _json_lines(_spans(examples, labels)))
    else:
        assert isinstance(examples, Examples)
        suffix, lines = ".jsonl", _json_lines(_rows(examples, labels))
    path = stem.with_name(stem.name + suffix)
    write_text(path, "".join(f"{line}\n" for line in lines))
    return path


def _json_lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def _rows(examples: Examples, labels: Sequence[str]) -> Iterable[dict[str, Any]]:
    for index, text in enumerate(examples.texts):
        row: dict[str, Any] = {"text": text}
        if examples.pairs is not None:
            row["pair"] = examples.pairs[index]
        if examples.negatives is not None:
            row["negative"] = examples.negatives[index]
        answer = None if examples.labels is None else examples.labels[index].tolist()
        if isinstance(answer, list):
            row["label"] = [label for label, present in zip(labels, answer, strict=True) if present]
        elif isinstance(answer, float):
            row["label"] = answer
        elif labels and answer is not None:
            row["label"] = labels[answer]
        if examples.soft_labels is not None:
            row[PROBABILITIES] = dict(zip(labels, examples.soft_labels[index].tolist(), strict=True))
        # Positive pairs have the integer 1, and need no column.
        yield row


def _is_spaced(examples: TaggedTexts) -> bool:
    # A CoNLL file has lines with -DOCSTART- that are no words.
    return examples.tags is not None and all(
        words[0] != "-DOCSTART-" and " ".join(words) == text
        for text, words in zip(examples.texts, map(_words, examples.texts, examples.words), strict=True)
    )


def _words(text: str, offsets: Any) -> list[str]:
    return [text[start:end] for start, end in offsets.tolist()]


def _conll(examples: TaggedTexts) -> Iterable[str]:
    for text, offsets, tags in zip(examples.texts, examples.words, examples.tags or (), strict=True):
        yield from (f"{word}\t{tag}" for word, tag in zip(_words(text, offsets), tags, strict=True))
        yield ""


def _spans(examples: TaggedTexts, labels: Sequence[str]) -> Iterable[dict[str, Any]]:
    for index, (text, offsets, tags) in enumerate(
        zip(examples.texts, examples.words, examples.tags or (), strict=True)
    ):
        spans = [[int(offsets[span.first, 0]), int(offsets[span.last, 1]), span.label] for span in spans_of(tags)]
        row: dict[str, Any] = {"text": text, "spans": spans}
        if examples.soft_labels is not None:
            # These texts come from .jsonl files, whose words the reader finds again.
            row[PROBABILITIES] = [
                dict(zip(labels, of_word, strict=True)) if any(of_word) else None
                for of_word in examples.soft_labels[index].tolist()
            ]
        yield row


def _questions(examples: Iterable[Question]) -> dict[str, Any]:
    """Returns questions in SQuAD's form; consecutive ones on a text share its paragraph."""
    paragraphs = [
        {"context": context, "qas": [_question(question) for question in questions]}
        for context, questions in itertools.groupby(examples, key=lambda question: question.context)
    ]
    return {"data": [{"paragraphs": paragraphs}]}


def _question(question: Question) -> dict[str, Any]:
    answers = [
        {"text": text, "answer_start": start} for text, start in zip(question.answers, question.starts, strict=True)
    ]
    return {"id": question.id, "question": question.question, "answers": answers, "is_impossible": question.impossible}
