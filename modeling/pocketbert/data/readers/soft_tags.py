"""Soft labels for words: tag probabilities, as `predict --soft-labels` writes them into a .jsonl file.

A line is `{"text": "in Rome", "words": [[0, 2], [3, 7]], "probabilities": [{"O": 0.9, "B-LOC": 0.06, "I-LOC": 0.04},
null]}`, and may have `spans`. `words` are offsets in code points; without them, there is an entry for each word from
`split_words`. A word has its soft label if one of `words` starts with it, and none for `null`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.readers.iob import tags_of_types
from pocketbert.data.readers.rows import RowProblems, json_object, listed, read_utf8, shown
from pocketbert.data.readers.soft_labels import PROBABILITIES, checked_probabilities, normalized
from pocketbert.data.readers.tagged_texts import TaggedTexts, read_tagged
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_runtime.answers.tags import OUTSIDE, iob2, prefixed, spans_of, type_of

WORDS = "words"
_Path = str | os.PathLike[str]


class SoftTagReader:
    """`read_tagged` for files with soft labels. A file without them, such as a dev file, has spans alone.

    Args:
      source: the training file.
      columns: `probabilities`.
      types: span types; None for those in the soft labels.
    Raises:
      UserError: the training file cannot have soft labels, or its first ones have other labels than IOB2 tags.
    """

    def __init__(self, source: _Path, columns: Sequence[str], types: Sequence[str] | None) -> None:
        if tuple(columns) != (PROBABILITIES,) or Path(source).suffix.lower() != ".jsonl":
            raise UserError(
                f"soft labels of words are in {PROBABILITIES!r} of a .jsonl file; received {listed(columns)} and "
                f"{source}; write the file with pocketbert predict, or see the page on distillation"
            )
        self.types = tuple(types or _types_of(source))

    def __call__(self, path: _Path, *, skip_bad_rows: bool = False, text: str = "text", **columns: Any) -> TaggedTexts:
        """Reads a file; see `read_tagged`."""
        if skip_bad_rows:
            raise UserError(f"soft labels need all rows; received {argument('skip_bad_rows', True)}; leave it out")
        examples = read_tagged(path, **{**columns, "types": self.types, "text": text})
        if Path(path).suffix.lower() != ".jsonl":
            return examples
        rows = json_rows(path)
        if not any(PROBABILITIES in row for _, row in rows):
            return examples
        labels, problems, soft = tags_of_types(self.types), RowProblems(path), []
        for (number, row), words in zip(rows, examples.words, strict=True):
            try:
                soft.append(soft_tags(row, row[text], words, labels))
            except ValueError as error:
                problems.add(number, str(error))
        problems.raise_if_any()
        softened = dataclasses.replace(examples, soft_labels=soft)
        if examples.tags is not None:
            return softened
        log_info(f"{path} has no spans: the most likely tag of each word is its tag")
        tags = [_likely(probabilities, labels) for probabilities in soft]
        return dataclasses.replace(softened, tags=tags, has_likely_labels=True)


def json_rows(path: _Path) -> list[tuple[int, dict[str, Any]]]:
    """Returns line numbers and objects."""
    lines = enumerate(read_utf8(path).split("\n"), start=1)
    return [(number, json_object(line)) for number, line in lines if line.strip()]


def _types_of(path: _Path) -> list[str]:
    """Returns the types in a file's first soft label. Raises `UserError` if there is none, or it lacks a tag."""
    try:
        answers = [row.get(PROBABILITIES) for _, row in json_rows(path)]
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return [type_of(label) for label in tags_in(answers, str(path)) if label.startswith("B-")]


def tags_in(answers: Iterable[Any], where: str) -> tuple[str, ...]:
    """Returns the tags in the first word's soft label. Raises `UserError`, naming `where`, if they are incomplete."""
    words = (word for answer in answers if isinstance(answer, list) for word in answer)
    first = next((word for word in words if isinstance(word, dict)), {})
    types = list(dict.fromkeys(filter(None, (type_of(prefixed(label)) for label in first))))
    if not types or {*first} != {*tags_of_types(types)}:
        raise UserError(
            f"{where}: {PROBABILITIES} of a word must have O, and B- and I- for each type; received "
            f"{listed(first) or 'none'}"
        )
    return tags_of_types(types)


def soft_tags(row: dict[str, Any], text: str, words: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Returns a line's probabilities [words, tags]. Raises `ValueError` if they are none, or do not fit the words."""
    answers = row.get(PROBABILITIES)
    if not isinstance(answers, list):
        raise ValueError(
            f"the line must have a list {PROBABILITIES!r}, with an entry for each word; received {shown(row)}"
        )
    soft = np.zeros([len(words), len(labels)])
    for word, answer in zip(_word_indices(row, text, words, len(answers)), answers, strict=True):
        if answer is None:
            continue
        if not isinstance(answer, dict) or {*answer} != {*labels}:
            received = listed(answer) if isinstance(answer, dict) else shown(answer)
            raise ValueError(f"{PROBABILITIES} of a word must have the labels {listed(labels)}; received {received}")
        soft[word] = checked_probabilities([answer[label] for label in labels], independent=False)
    return normalized(soft)


def _word_indices(row: dict[str, Any], text: str, words: np.ndarray, count: int) -> list[int]:
    """Returns each entry's word index; a line has `count` entries. Raises `ValueError` if they do not fit the words."""
    offsets = row.get(WORDS)
    if offsets is None:
        if count != len(words):
            raise ValueError(
                f"{PROBABILITIES} must have an entry for each of the {len(words)} words; received {count}; split at "
                f"white space and punctuation, or give the offsets of your words in {WORDS!r}"
            )
        return list(range(count))
    if not isinstance(offsets, list) or len(offsets) != count:
        raise ValueError(
            f"{WORDS!r} must have as many offsets as {PROBABILITIES!r}, {count}; received {shown(offsets)}"
        )
    index = {int(start): number for number, start in enumerate(words[:, 0])}
    indices = []
    for pair in offsets:
        if not isinstance(pair, list) or [type(part) for part in pair] != [int, int]:
            raise ValueError(f"a word must be [start, end] in code points; received {shown(pair)}")
        start, end = pair
        if start not in index or not start < end <= len(text):
            raise ValueError(
                f"a word must start where a word of the text starts, and end in the text; received {shown(pair)}, "
                f"{shown(text[max(start, 0) : max(end, 0)])}"
            )
        indices.append(index[start])
    if len({*indices}) < count:
        raise ValueError(f"words must start at different places; received {shown(offsets)}")
    return indices


def _likely(probabilities: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Returns each word's most likely tag as IOB2; `O` for words without soft labels."""
    likely = [labels[index] for index in probabilities.argmax(axis=1)]
    tags = [tag if taught else OUTSIDE for tag, taught in zip(likely, probabilities.max(axis=1) > 0, strict=True)]
    return iob2(spans_of(tags), len(tags))
