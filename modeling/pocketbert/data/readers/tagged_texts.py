"""Texts with labelled spans: CoNLL files, and JSONL files with offsets in code points.

A CoNLL file has a word per line, its columns separated by tabs or spaces: the word first, its tag last, as in
CoNLL-2003's four columns. An empty line ends a sentence; `-DOCSTART-` lines are skipped. Spaces join the words.

A JSONL line is `{"text": "…", "spans": [{"start": 0, "end": 5, "label": "LOC"}]}`, or has triples `[0, 5, "LOC"]`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.iob import SchemeCheck
from pocketbert.data.readers.rows import RowProblems, json_object, read_utf8, shown
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_runtime.answers.tags import OUTSIDE, WordSpan, iob2, is_tag, spans_of, type_of
from pocketbert_runtime.answers.words import split_words

_EXTENSIONS = (".conll", ".iob", ".iob2", ".bio", ".bioes")
_SPANS = "spans"
_DOCUMENT = "-DOCSTART-"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TaggedTexts:
    """Texts, their words, and a tag per word.

    Attributes:
      texts: the texts.
      words: int64 `[words, 2]` for each text, word offsets in code points.
      tags: each text's IOB2 word tags, or None for unlabelled texts.
      source: file path, for messages and records.
      skipped_rows: number of unreadable sentences or lines skipped in the file.
      soft_labels: float64 `[words, tags]` for each text, a teacher's probabilities, 0 for words without them; or None.
      has_likely_labels: see `Examples.has_likely_labels`.
    """

    texts: list[str]
    words: list[np.ndarray]
    tags: list[list[str]] | None
    source: str
    skipped_rows: int = 0
    soft_labels: list[np.ndarray] | None = None
    has_likely_labels: bool = False

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        spans = f"spans of {', '.join(self.types) or 'no type'}" if self.labelled else "no tags"
        return f"<TaggedTexts {len(self)} texts with {spans} of {self.source}>"

    @property
    def types(self) -> list[str]:
        """Span types, in alphabetical order."""
        return sorted({type_of(tag) for tags in self.tags or () for tag in tags} - {""})

    @functools.cached_property
    def identity(self) -> str:
        """SHA-256 over texts, words, tags and soft labels."""
        words = [word.tolist() for word in self.words]
        digest = hashlib.sha256(json.dumps([self.texts, words, self.tags]).encode())
        for probabilities in self.soft_labels or ():
            digest.update(probabilities.tobytes())
        return digest.hexdigest()

    unit: ClassVar[str] = "texts"

    @property
    def read_texts(self) -> list[str]:
        """The texts."""
        return self.texts

    @property
    def answers(self) -> list[list[str]] | None:
        """The tags."""
        return self.tags

    def label_counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Counts the spans with each type."""
        starts = [type_of(tag) for tags in self.tags or () for tag in tags if tag.startswith("B")]
        return {name: starts.count(name) for name in map(type_of, labels) if name and self.tags is not None}

    @property
    def labelled(self) -> bool:
        """Whether the texts have tags."""
        return self.tags is not None

    @property
    def missing_labels(self) -> str:
        """Names the missing labels for a message."""
        return f"spans; {self.source} has none"

    @property
    def has_pairs(self) -> bool:
        """False: an example is one text."""
        return False

    @property
    def classes(self) -> None:
        """None: texts have no classes."""

    @property
    def label_sets(self) -> None:
        """None: words have tags, not texts."""

    @property
    def split_keys(self) -> Iterable[str]:
        """The texts; examples with the same text stay in the same split."""
        return self.texts

    def first_texts(self, count: int) -> Examples:
        """Returns up to `count` texts from the beginning."""
        texts = self.texts[:count]
        return Examples(texts, None, None, [str(index) for index in range(len(texts))], self.source)

    def select(self, indices: Sequence[int] | np.ndarray) -> TaggedTexts:
        """Returns the texts at `indices`, in this order."""
        chosen = [int(index) for index in indices]
        return TaggedTexts(
            texts=[self.texts[index] for index in chosen],
            words=[self.words[index] for index in chosen],
            tags=None if self.tags is None else [self.tags[index] for index in chosen],
            source=self.source,
            soft_labels=None if self.soft_labels is None else [self.soft_labels[index] for index in chosen],
            has_likely_labels=self.has_likely_labels,
        )


def is_tagged_file(path: str | os.PathLike[str] | None) -> bool:
    """Returns whether a path has a CoNLL extension."""
    return path is not None and Path(path).suffix.lower() in _EXTENSIONS


def plain_texts(texts: Sequence[str], source: str) -> TaggedTexts:
    """Returns texts without labels; `split_words` finds the words."""
    return TaggedTexts(list(texts), [split_words(text) for text in texts], None, source)


def read_tagged(
    path: str | os.PathLike[str],
    *,
    types: Sequence[str] | None = None,
    text: str = "text",
    label: str | None = None,
    skip_bad_rows: bool = False,
) -> TaggedTexts:
    """Reads a CoNLL file, or a .jsonl file with spans.

    Args:
      path: the file, in UTF-8.
      types: allowed span types; None for any.
      text: member with the text in a .jsonl file.
      label: member with the spans in a .jsonl file (None: `spans`), or tag column from 1 in a CoNLL file (None: last).
      skip_bad_rows: skip unreadable sentences or lines, and log their number.
    Raises:
      UserError: a missing or empty file, a line with another number of columns, a tag without a prefix or with an
        unknown type, tags that no scheme allows, or spans that overlap or lie outside their text. One error
        lists the first problems.
    """
    path = Path(path)
    problems = RowProblems(path)
    content = read_utf8(path)
    known_types = None if types is None else set(types)
    if path.suffix.lower() == ".jsonl":
        texts, words, tags = _read_jsonl(content, text, label or _SPANS, known_types, problems, str(path))
    else:
        check = SchemeCheck(path)
        texts, words, tags = _read_conll(content, label, known_types, problems, check)
        # A wrong tag would else look like a violation of all schemes.
        if skip_bad_rows or not len(problems):
            check.raise_if_none()
    if not skip_bad_rows or not texts:
        problems.raise_if_any()
    if not texts:
        raise UserError(f"{path}: the file must have at least one sentence; received none")
    if len(problems):
        problems.log_skipped(len(problems) + len(texts))
    return TaggedTexts(texts, words, tags, str(path), len(problems))


_Read = tuple[list[str], list[np.ndarray], list[list[str]] | None]


def _read_conll(
    content: str, label_column: str | None, known_types: set[str] | None, problems: RowProblems, check: SchemeCheck
) -> _Read:
    column = _column_number(label_column)
    texts, words, tags = [], [], []
    columns = None
    for lines in _sentences(content):
        columns = columns or len(lines[0][1])
        problem = None
        for number, cells in lines:
            problem = _line_problem(cells, columns, column, known_types)
            if problem:
                problems.add(number, problem)
                break
        if problem:
            continue
        stored_tags = [cells[column - 1 if column else -1] for _, cells in lines]
        check.add(stored_tags, [number for number, _ in lines])
        lengths = np.array([len(cells[0]) for _, cells in lines], np.int64)
        starts = np.cumsum(lengths + 1) - lengths - 1
        texts.append(" ".join(cells[0] for _, cells in lines))
        words.append(np.stack([starts, starts + lengths], axis=1))
        tags.append(iob2(spans_of(stored_tags), len(stored_tags)))
    return texts, words, tags


def _column_number(label_column: str | None) -> int | None:
    if label_column is None:
        return None
    if not re.fullmatch("[1-9][0-9]?", label_column) or label_column == "1":
        raise UserError(
            f"{argument('label')} of a CoNLL file must be a column's number from 2, such as 4; received "
            f"{label_column!r}"
        )
    return int(label_column)


def _sentences(content: str) -> Iterable[list[tuple[int, list[str]]]]:
    """Yields each sentence in a CoNLL file: its words' line numbers and cells."""
    sentence: list[tuple[int, list[str]]] = []
    for number, line in enumerate([*content.split("\n"), ""], start=1):
        line = line.removesuffix("\r")
        cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        if line.strip() and cells[0] != _DOCUMENT:
            sentence.append((number, cells))
        elif sentence:
            yield sentence
            sentence = []


def _line_problem(cells: Sequence[str], columns: int, column: int | None, known_types: set[str] | None) -> str | None:
    least = max(2, column or 2)
    if len(cells) != columns or len(cells) < least:
        rule = f"{columns} columns, as the first line" if columns >= least else f"at least {least} columns"
        return f"a line must have {rule}: a word first, its tag last; received {shown(' '.join(cells))}"
    if not cells[0].strip():
        return "a line must start with a word; received an empty one"
    tag = cells[column - 1 if column else -1]
    if not is_tag(tag):
        return f"a tag must be O, or B-, I-, E- or S- and a type, such as B-LOC; received {shown(tag)}"
    if known_types is not None and tag != OUTSIDE and type_of(tag) not in known_types:
        return f"the type must be one of {', '.join(sorted(known_types))[:200]}; received {shown(type_of(tag))}"
    return None


def _read_jsonl(
    content: str, text_column: str, spans_column: str, known_types: set[str] | None, problems: RowProblems, source: str
) -> _Read:
    texts, words, tags = [], [], []
    cut = count = 0
    rows = [(number, line) for number, line in enumerate(content.split("\n"), start=1) if line.strip()]
    labelled: bool | None = None
    for number, line in rows:
        try:
            row = json_object(line)
            text = row.get(text_column)
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"the line must have a text {text_column!r}; received {shown(text)}")
            labelled = spans_column in row if labelled is None else labelled
            if labelled != (spans_column in row):
                raise ValueError(
                    f"either all lines or none must have {spans_column!r}, [] for a text without spans; received "
                    f"{shown(row)}"
                )
            of_text, of_words, cut_in_text = spans_on_words(row.get(spans_column, []), text, known_types)
        except (ValueError, UserError) as error:
            problems.add(number, str(error))
            continue
        count += sum(tag.startswith("B") for tag in of_words)
        cut += cut_in_text
        texts.append(text)
        words.append(of_text)
        tags.append(of_words)
    if cut:
        log_info(f"{source}: {cut} of {count} spans start or end inside a word; they are extended to whole words")
    return texts, words, tags if labelled else None


def spans_on_words(stored: Any, text: str, known_types: set[str] | None) -> tuple[np.ndarray, list[str], int]:
    """Returns a text's words, its spans' IOB2 tags, and the number of spans that start or end inside a word.

    Raises:
      ValueError: a span is invalid, overlaps another one, lies outside the text, shares a word or has an unknown label.
    """
    spans, words = _spans(stored, text, known_types), split_words(text)
    begins, ends = words[:, 0], words[:, 1]
    # The words that each span touches.
    aligned = [
        WordSpan(int(np.searchsorted(ends, start, "right")), int(np.searchsorted(begins, end, "left")) - 1, label)
        for start, end, label in spans
    ]
    if any(one.last >= other.first for one, other in zip(aligned, aligned[1:], strict=False)):
        raise ValueError(f"a word must belong to one span; received spans that share one: {shown(spans)}")
    cut = sum(
        (words[first, 0], words[last, 1]) != (start, end)
        for (first, last, _), (start, end, _) in zip(aligned, spans, strict=True)
    )
    return words, iob2(aligned, len(words)), cut


def _spans(stored: Any, text: str, known_types: set[str] | None) -> list[tuple[int, int, str]]:
    """Returns the sorted spans in a text; raises `ValueError` for invalid, unknown, outside or overlapping ones."""
    spans = []
    for span in stored if isinstance(stored, list) else [stored]:
        parts = [span.get(name) for name in ("start", "end", "label")] if isinstance(span, dict) else span
        if not isinstance(parts, list) or [type(part) for part in parts] != [int, int, str]:
            raise ValueError(f'a span must have "start", "end" and "label"; received {shown(span)}')
        start, end, label = parts
        if not 0 <= start < end <= len(text) or not text[start:end].strip():
            raise ValueError(
                f"a span must lie inside its text, of {len(text)} code points, and have a word; received {shown(span)}"
            )
        if label.strip() != label or not label:
            raise ValueError(f"the label of a span must be a name without space around it; received {shown(span)}")
        if known_types is not None and label not in known_types:
            raise ValueError(
                f"the label must be one of {', '.join(sorted(known_types))[:200]}; received {shown(label)}"
            )
        spans.append((start, end, label))
    spans.sort()
    for one, other in zip(spans, spans[1:], strict=False):
        if one[1] > other[0]:
            raise ValueError(f"spans must not overlap; received {shown([*one])} and {shown([*other])}")
    return spans
