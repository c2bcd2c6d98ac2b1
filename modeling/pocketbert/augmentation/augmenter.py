"""Augments a part of a data set: a masked-LM model and word vectors, loaded once, and the rows that they make."""

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
# Enough sentences to fill batches of every length; what a kill costs is the work of so many.
EXAMPLES_A_CHUNK = 2048


@dataclass(frozen=True, kw_only=True)
class AugmentationJob:
    """All that a process needs to augment a part of a data set.

    Attributes:
      masked_lm: a model directory with a masked-LM head.
      glove: a file of word vectors; None leaves words of several tokens as they are.
      glove_rows: how many of its lines to read, from the top; None for all.
      options: how to augment.
      max_length: tokens that the masked-LM model reads; 0 for as many as it takes.
      columns: names of the output's columns for the text and, of pairs, the second text.
      label_column: name of the label's column; None for unlabelled text.
      suffix: `.jsonl` or `.tsv`, the output's form.
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
        problems = [f"columns must differ from one another; received {', '.join(names)}"] * (
            len(set(names)) != len(names)
        )
        if self.suffix not in SUFFIXES:
            problems.append(f"the output's name must end in {' or '.join(SUFFIXES)}; received {self.suffix or 'none'}")
        raise_if_any(problems, "augment")

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The text columns, the label's where there is one, and where the row comes from."""
        label = (self.label_column,) if self.label_column else ()
        return (*self.columns, *label, EXAMPLE_COLUMN, COPY_COLUMN)


@dataclass(frozen=True)
class Part:
    """Consecutive examples of a data set: plain Python, so that it travels between processes.

    Attributes:
      first: the number of the first of them in the whole data set.
      sides: for each example its text, or the two of a pair.
      labels: for each example what goes into the label's column; None for unlabelled text.
      ids: for each example its name.
    """

    first: int
    sides: list[tuple[str, ...]]
    labels: list[str | float] | None
    ids: list[str]

    def file(self, folder: Path) -> Path:
        """Where its rows are, once they are all written."""
        return folder / f"{self.first:09}-{self.first + len(self.sides):09}"


OnTexts = Callable[[int], None]
# Writes parts into their files in a folder.
Writer = Callable[[Sequence[Part], Path], None]


class Augmenter:
    """The masked-LM model and the word vectors of a job, loaded once.

    Raises:
      UserError: they cannot be read or used.
    """

    def __init__(self, job: AugmentationJob) -> None:
        self._job = job
        vectors = None if job.glove is None else read_glove(job.glove, job.glove_rows)
        self._find = WordCandidates(from_pretrained(job.masked_lm), vectors, job.options, max_length=job.max_length)

    def rows(self, part: Part, on_texts: OnTexts = lambda count: None) -> Iterator[bytes]:
        """The part's rows as lines of the output, originals and copies.

        Args:
          part: the examples.
          on_texts: called now and then with how many more sentences are done.
        """
        width = len(self._job.columns)
        for start in range(0, len(part.sides), EXAMPLES_A_CHUNK):
            chunk = part.sides[start : start + EXAMPLES_A_CHUNK]
            sentences = self._find(list(itertools.chain.from_iterable(chunk)), on_texts)
            for index in range(len(chunk)):
                place = start + index
                sides = sentences[index * width : (index + 1) * width]
                label = None if part.labels is None else part.labels[place]
                for copy, texts in augmented_rows(sides, part.first + place, self._job.options):
                    yield self._line(texts, label, part.ids[place], copy)

    def _line(self, texts: tuple[str, ...], label: str | float | None, example: str, copy: int) -> bytes:
        cells = (*texts, *(() if label is None else (label,)), example, copy)
        return line_of(self._job, cells)


def count_chunks(examples: int) -> int:
    """How many chunks so many examples are."""
    return math.ceil(examples / EXAMPLES_A_CHUNK)


def line_of(job: AugmentationJob, cells: tuple[Any, ...]) -> bytes:
    """One row in the output's form; in TSV, tabs and line breaks within a text become spaces."""
    if job.suffix == ".tsv":
        return ("\t".join(re.sub(r"[\t\r\n]+", " ", str(cell)) for cell in cells) + "\n").encode("utf-8", "replace")
    row = dict(zip(job.output_columns, cells, strict=True))
    try:
        return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can say and UTF-8 cannot.
        return (json.dumps(row) + "\n").encode("ascii")


def header(job: AugmentationJob) -> bytes:
    """What the output begins with."""
    return ("\t".join(job.output_columns) + "\n").encode() if job.suffix == ".tsv" else b""


def write_part(augmenter: Augmenter, part: Part, folder: Path, on_texts: OnTexts = lambda count: None) -> None:
    """Writes a part's rows into its file, complete or not at all."""
    with new_file(part.file(folder)) as stream:
        stream.writelines(augmenter.rows(part, on_texts))
