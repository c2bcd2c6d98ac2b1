"""Word vectors in GloVe's text format, and nearest neighbours."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pocketbert.data.readers.rows import RowProblems, shown
from pocketbert.errors import UserError
from pocketbert.progress import bar

# As in TinyBERT's code. GloVe's files start with the most frequent words.
DEFAULT_ROWS = 100_000
_QUERIES_A_PRODUCT = 256
# Extra candidates, all ranked again in float64, since a float32 product's last bits depend on its shape.
_SPARE_PLACES = 16
# Approximately the largest float32.
_LARGEST = 3.0e38


class WordVectors:
    """Words with vectors, and nearest neighbours by cosine similarity.

    Source: GloVe (Pennington et al. 2014), as used for TinyBERT's augmentation (section 3.2).
    Shapes: V words, D dimensions.

    Args:
      words: `[V]` unique words, the most frequent first.
      vectors: float `[V, D]`. A word with a zero vector has no neighbours.
    Attributes:
      words: the words.
      unit_vectors: float32 `[V, D]` with length 1, or 0 for zero vectors.
    Raises:
      ValueError: the counts differ or a word is repeated.
    """

    def __init__(self, words: Sequence[str], vectors: np.ndarray) -> None:
        if vectors.ndim != 2 or len(words) != len(vectors):
            raise ValueError(f"vectors must be [V, D] with V words; received {vectors.shape} and {len(words)} words")
        self.words = tuple(words)
        self._rows = {word: row for row, word in enumerate(self.words)}
        if len(self._rows) != len(self.words):
            raise ValueError(f"words must be unique; received {len(self.words) - len(self._rows)} repeated")
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        self._has_direction = lengths[:, 0] > 0
        self.unit_vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def neighbours(self, words: Iterable[str], count: int) -> dict[str, tuple[str, ...]]:
        """Finds words' nearest neighbours by cosine similarity, nearest first, without the word itself.

        A word's result does not depend on the others. Ties are in file order. Words without a nonzero vector are left
        out.

        Args:
          words: any words, also repeated ones.
          count: neighbours per word; fewer only if there are fewer words.
        """
        if count < 1:
            raise ValueError(f"count must be positive; received {count}")
        with_vectors = [
            word for word in dict.fromkeys(words) if word in self._rows and self._has_direction[self._rows[word]]
        ]
        neighbours: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(with_vectors), _QUERIES_A_PRODUCT):
            chunk = with_vectors[start : start + _QUERIES_A_PRODUCT]
            rows = np.array([self._rows[word] for word in chunk])
            cosines = self.unit_vectors[rows] @ self.unit_vectors.T
            cosines[:, ~self._has_direction] = -np.inf
            cosines[np.arange(len(rows)), rows] = -np.inf
            places = min(count + _SPARE_PLACES, len(self.words))
            nearest = np.argpartition(cosines, len(self.words) - places, axis=1)[:, -places:]
            for word, row, candidates in zip(chunk, rows, nearest, strict=True):
                neighbours[word] = self._ranked(int(row), candidates, count)
        return neighbours

    def _ranked(self, row: int, candidates: np.ndarray, count: int) -> tuple[str, ...]:
        candidates = candidates[self._has_direction[candidates] & (candidates != row)]
        vectors = self.unit_vectors[candidates].astype(np.float64)
        cosines = (vectors * self.unit_vectors[row]).sum(axis=1)
        order = np.lexsort((candidates, -cosines))[:count]
        return tuple(self.words[candidate] for candidate in candidates[order])


def read_glove(path: str | os.PathLike[str], rows: int | None = DEFAULT_ROWS) -> WordVectors:
    """Reads vectors in GloVe's text format: per line, a word and its numbers, separated by single spaces.

    It skips a first line with two counts (word2vec, fastText), repeated words, and words with a space, such as "at
    name@domain.com" in the vectors for 840 billion words.

    Args:
      path: the file, plain or `.gz`.
      rows: maximum number of lines to read; None for all.
    Raises:
      UserError: the file cannot be read or has no vectors, or lines are not UTF-8, have another number of numbers than
        the first line, or have an invalid number. The error lists the first such lines.
    """
    path = Path(path)
    if rows is not None and rows < 1:
        raise UserError(f"the number of rows must be at least 1; received {rows}")
    problems = RowProblems(path)
    words: dict[str, int] = {}
    vectors: list[np.ndarray] = []
    dimensions = 0
    with bar(rows, f"read {path.name}", "word") as progress:
        for number, line in enumerate(_lines(path), start=1):
            if rows is not None and progress.n >= rows:
                break
            if number == 1 and len(parts := line.split()) == 2 and all(part.isdigit() for part in parts):
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
            f"{path}: the file must have a word and its numbers in each line; found no words; pass a GloVe text file"
        )
    return WordVectors(tuple(words), np.stack(vectors))


def _lines(path: Path) -> Iterator[bytes]:
    """Yields lines. Only a newline ends a line, since words may contain other Unicode separators."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            for line in stream:
                yield line.rstrip(b"\r\n").rstrip(b" ")
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: the file cannot be read ({reason}); check the path, or download it again") from error


def _parse(line: bytes, dimensions: int) -> tuple[str, np.ndarray]:
    """Reads a line's word and vector; raises `ValueError` if it is invalid."""
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
        raise ValueError("the line must begin with a word; received none")
    if len(parts) > dimensions + 1 and _is_number(parts[-dimensions - 1]):
        raise ValueError(
            f"the line must be a word and {dimensions} numbers, as in the first line; received {len(parts) - 1}"
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
