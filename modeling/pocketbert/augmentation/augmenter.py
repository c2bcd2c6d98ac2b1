"""Augments parts of a data set with a masked-LM model and word vectors."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.augmentation.augmented_rows import AugmentationOptions, augmented_rows
from pocketbert.augmentation.glove import DEFAULT_ROWS, read_glove
from pocketbert.augmentation.word_candidates import WordCandidates
from pocketbert.errors import raise_if_any
from pocketbert.files import new_file
from pocketbert.model import from_pretrained

SUFFIXES = (".jsonl", ".tsv")
EXAMPLE_COLUMN, COPY_COLUMN = "example", "copy"
# Enough sentences to fill batches at all lengths. A killed run loses at most this many.
EXAMPLES_A_CHUNK = 2048


@dataclass(frozen=True, kw_only=True)
class AugmentationJob:
    """Everything that a process needs to augment a part of a data set.

    Attributes:
      masked_lm: model directory with a masked-LM head.
      glove: file with word vectors; without it, words with several tokens are not replaced.
      glove_rows: number of lines to read; None for all.
      options: augmentation options.
      max_length: the masked-LM model's maximum sequence length; 0 for its own maximum.
      columns: text columns in the output: one, or two for pairs.
      label_column: label column in the output; None for unlabelled text.
      suffix: output format, `.jsonl` or `.tsv`.
    """

    masked_lm: str
    glove: str | None
    glove_rows: int | None = DEFAULT_ROWS
    options: AugmentationOptions
    max_length: int = 0
    columns: tuple[str, ...] = ("text",)
    label_column: str | None = "label"
    suffix: str = ".jsonl"

    def __post_init__(self) -> None:
        names = self.output_columns
        problems = [f"columns must be different; received {', '.join(names)}"] * (len(set(names)) != len(names))
        if self.suffix not in SUFFIXES:
            problems.append(f"the output must end in {' or '.join(SUFFIXES)}; received {self.suffix or 'none'}")
        raise_if_any(problems, "augment")

    @property
    def output_columns(self) -> tuple[str, ...]:
        """Text columns, label column if there is one, and the columns for the row's origin."""
        label = (self.label_column,) if self.label_column else ()
        return (*self.columns, *label, EXAMPLE_COLUMN, COPY_COLUMN)


@dataclass(frozen=True)
class Part:
    """Consecutive examples from a data set, for pickling.

    Attributes:
      first: the first example's number in the data set.
      sides: each example's text, or both texts for a pair.
      labels: label column for each example; None for unlabelled text.
      ids: each example's id.
    """

    first: int
    sides: list[tuple[str, ...]]
    labels: list[str | float] | None
    ids: list[str]

    def file(self, folder: Path) -> Path:
        """Returns the path for the finished rows."""
        return folder / f"{self.first:09}-{self.first + len(self.sides):09}"


OnTexts = Callable[[int], None]
Writer = Callable[[Sequence[Part], Path], None]


class Augmenter:
    """Augments examples with a job's masked-LM model and word vectors.

    Raises:
      UserError: the model or the vectors cannot be read or used.
    """

    def __init__(self, job: AugmentationJob) -> None:
        self._job = job
        vectors = None if job.glove is None else read_glove(job.glove, job.glove_rows)
        self._find = WordCandidates(from_pretrained(job.masked_lm), vectors, job.options, max_length=job.max_length)

    def rows(self, part: Part, on_texts: OnTexts = lambda count: None) -> Iterator[bytes]:
        """Yields a part's rows, originals and copies, as output lines."""
        width = len(self._job.columns)
        for start in range(0, len(part.sides), EXAMPLES_A_CHUNK):
            chunk = part.sides[start : start + EXAMPLES_A_CHUNK]
            sentences = self._find(list(itertools.chain.from_iterable(chunk)), on_texts)
            for index in range(len(chunk)):
                position = start + index
                sides = sentences[index * width : (index + 1) * width]
                label = () if part.labels is None else (part.labels[position],)
                for copy, texts in augmented_rows(sides, part.first + position, self._job.options):
                    yield line_of(self._job, (*texts, *label, part.ids[position], copy))


def count_chunks(examples: int) -> int:
    """Counts the chunks for `examples` examples."""
    return math.ceil(examples / EXAMPLES_A_CHUNK)


def line_of(job: AugmentationJob, cells: tuple[Any, ...]) -> bytes:
    """Formats a row for the output. In TSV, tabs and line breaks in a text become spaces."""
    if job.suffix == ".tsv":
        return ("\t".join(re.sub(r"[\t\r\n]+", " ", str(cell)) for cell in cells) + "\n").encode("utf-8", "replace")
    row = dict(zip(job.output_columns, cells, strict=True))
    try:
        return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate has an escape in JSON, but no UTF-8.
        return (json.dumps(row) + "\n").encode("ascii")


def header(job: AugmentationJob) -> bytes:
    """Returns the output's first line: the header in TSV, else nothing."""
    return ("\t".join(job.output_columns) + "\n").encode() if job.suffix == ".tsv" else b""


def write_part(augmenter: Augmenter, part: Part, folder: Path, on_texts: OnTexts = lambda count: None) -> None:
    """Writes a part's rows to its file, atomically."""
    with new_file(part.file(folder)) as stream:
        stream.writelines(augmenter.rows(part, on_texts))
