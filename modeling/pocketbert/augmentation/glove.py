"""Word vectors in GloVe's text format, and the words nearest to a word."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pocketbert.data.reading import RowProblems, shown
from pocketbert.errors import UserError
from pocketbert.progress import bar

# GloVe's files put the most frequent words first; the authors of TinyBERT read this many.
DEFAULT_ROWS = 100_000
_QUERIES_A_PRODUCT = 256
# Places beyond the asked-for ones that are ranked again in float64, since a product's last bits depend on its shape.
_SPARE_PLACES = 16
# About the largest float32.
_LARGEST = 3.0e38


class WordVectors:
    """Words with their vectors, and the nearest ones by cosine.

    Source: GloVe (Pennington et al. 2014), as TinyBERT's augmentation (section 3.2) uses it.
    Shapes: V words, D dimensions.

    Args:
      words: `[V]`, all different, the most frequent first.
      vectors: float `[V, D]`. A word whose vector is all zero has no direction and so no neighbours.

    Attributes:
      words: as given.
      unit_vectors: float32 `[V, D]` of length 1, or 0 where the given vector was 0.
    Raises:
      ValueError: the counts differ or a word is repeated.
    """

    def __init__(self, words: Sequence[str], vectors: np.ndarray) -> None:
        if vectors.ndim != 2 or len(words) != len(vectors):
            raise ValueError(f"vectors must be [V, D] with V words; received {vectors.shape} and {len(words)} words")
        self.words = tuple(words)
        self._rows = {word: row for row, word in enumerate(self.words)}
        if len(self._rows) != len(self.words):
            raise ValueError(f"words must differ; received {len(self.words) - len(self._rows)} repeated")
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        self._has_direction = lengths[:, 0] > 0
        self.unit_vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def neighbours(self, words: Iterable[str], count: int) -> dict[str, tuple[str, ...]]:
        """The words with the largest cosine to each of `words`, nearest first, the word itself left out.

        The answer for a word does not depend on which others are requested. Words of equal cosine stand in the order
        of the file.

        Args:
          words: any words, repetitions too.
          count: neighbours a word; fewer only where there are not as many.
        Returns:
          Word → neighbours, for those of `words` that have a vector other than zero.
        """
        if count < 1:
            raise ValueError(f"count must be positive; received {count}")
        known = [word for word in dict.fromkeys(words) if word in self._rows and self._has_direction[self._rows[word]]]
        found: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(known), _QUERIES_A_PRODUCT):
            chunk = known[start : start + _QUERIES_A_PRODUCT]
            rows = np.array([self._rows[word] for word in chunk])
            cosines = self.unit_vectors[rows] @ self.unit_vectors.T
            cosines[:, ~self._has_direction] = -np.inf
            cosines[np.arange(len(rows)), rows] = -np.inf
            places = min(count + _SPARE_PLACES, len(self.words))
            nearest = np.argpartition(cosines, len(self.words) - places, axis=1)[:, -places:]
            for word, row, candidates in zip(chunk, rows, nearest, strict=True):
                found[word] = self._ranked(int(row), candidates, count)
        return found

    def _ranked(self, row: int, candidates: np.ndarray, count: int) -> tuple[str, ...]:
        candidates = candidates[self._has_direction[candidates] & (candidates != row)]
        vectors = self.unit_vectors[candidates].astype(np.float64)
        cosines = (vectors * self.unit_vectors[row]).sum(axis=1)
        order = np.lexsort((candidates, -cosines))[:count]
        return tuple(self.words[candidate] for candidate in candidates[order])


def read_glove(path: str | os.PathLike[str], rows: int | None = DEFAULT_ROWS) -> WordVectors:
    """Reads vectors in GloVe's text format: a word and its numbers a line, with single spaces between them.

    A first line of two whole numbers (the counts, as word2vec and fastText write them) is passed over. So are later
    lines of a word that was there before, and lines whose word holds a space: the file of 840 billion words has a few
    ("at name@domain.com"), and they are no single words.

    Args:
      path: the file; `.gz` is decompressed as it is read.
      rows: read this many lines at most, from the top; None for all.
    Raises:
      UserError: the file cannot be read or holds no vectors, or lines are not UTF-8, have another number of numbers
        than the first, or a number that is none or not finite: with the first such lines and the number of the others.
    """
    path = Path(path)
    if rows is not None and rows < 1:
        raise UserError(f"the rows to read must be at least 1; received {rows}")
    problems = RowProblems(path)
    words: dict[str, int] = {}
    vectors: list[np.ndarray] = []
    dimensions = 0
    with bar(rows, f"read {path.name}", "word") as progress:
        for number, line in enumerate(_lines(path), start=1):
            if rows is not None and progress.n >= rows:
                break
            if number == 1 and _is_header(line):
                continue
            if not line.strip():
                continue
            progress.update()
            dimensions = dimensions or len(line.split(b" ")) - 1
            try:
                word, vector = _parse(line, dimensions)
            except ValueError as error:
                problems.add(number, str(error))
                continue
            if word not in words and not any(map(str.isspace, word)):
                words[word] = number
                vectors.append(vector)
    problems.raise_if_any()
    if not words:
        raise UserError(
            f"{path}: the file must hold a word and its numbers a line; found no words; give a GloVe text file"
        )
    return WordVectors(tuple(words), np.stack(vectors))


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their ends; only a newline ends one, since words contain other Unicode separators."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            for line in stream:
                yield line.rstrip(b"\r\n").rstrip(b" ")
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: the file cannot be read ({reason}); check the path, or fetch it again") from error


def _is_header(line: bytes) -> bool:
    parts = line.split()
    return len(parts) == 2 and all(part.isdigit() for part in parts)


def _parse(line: bytes, dimensions: int) -> tuple[str, np.ndarray]:
    """A line's word and vector.

    Raises:
      ValueError: what is wrong with it.
    """
    parts = line.split(b" ")
    if dimensions < 1 or len(parts) <= dimensions:
        raise ValueError(
            f"the line must be a word and {max(dimensions, 1)} numbers; received {len(parts) - 1} after the word"
        )
    try:
        word = b" ".join(parts[:-dimensions]).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the word must be UTF-8; received byte 0x{error.object[error.start]:02x}") from error
    if not word:
        raise ValueError("the line must begin with its word; received none")
    if len(parts) > dimensions + 1 and _is_number(parts[-dimensions - 1]):
        raise ValueError(
            f"the line must be a word and {dimensions} numbers, as the first is; received {len(parts) - 1}"
        )
    try:
        vector = np.array([float(part) for part in parts[-dimensions:]])
    except ValueError:
        bad = next(part for part in parts[-dimensions:] if not _is_number(part))
        raise ValueError(f"{shown(bad.decode('utf-8', 'replace'))} must be a number; check the line") from None
    if not (np.abs(vector) < _LARGEST).all():
        raise ValueError("the numbers must be finite; received one that is not")
    return word, vector.astype(np.float32)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
