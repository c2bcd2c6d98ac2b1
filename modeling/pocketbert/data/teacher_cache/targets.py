"""Shapes, types and sizes for the targets in a teacher cache. No TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.data.readers.rows import shown
from pocketbert.data.teacher_cache.encodings import (
    DTYPES,
    ENCODINGS,
    INDEX_ENCODINGS,
    INTEGER_DTYPES,
    decode,
    encode,
    vector_bytes,
)
from pocketbert.errors import raise_if_any

_MOST_UNIT_BYTES = 1 << 32


@dataclass(frozen=True, kw_only=True)
class TargetSpec:
    """One target's layout in an example's record.

    Attributes:
      name: name in `Method.targets`.
      shape: shape for one example; None for token axes.
      dtype: stored type, a key in `DTYPES`; integers are positions or indices, from 0.
      encoding: one of `ENCODINGS`, for vectors on the last axis; see `pocketbert.data.teacher_cache.encodings`.
      limit: for `INDEX_ENCODINGS`, number of possible indices.
      kept: whether the first axis has a row for each of k kept tokens. An example with fewer candidates stores only
        their rows; a reader adds zeros.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    encoding: str = "plain"
    limit: int | None = None
    kept: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"the {field} of {shown(self.name)} must be one of {', '.join(known)}; received "
            f"{shown(getattr(self, field))}; the cache is from a newer PocketBERT; make it again"
            for field, known in (("dtype", tuple(DTYPES)), ("encoding", ENCODINGS))
            if getattr(self, field) not in known
        ]
        sizes = [size for size in self.shape if size is not None]
        if self.token_axes > 2 or min(sizes, default=1) < 1 or math.prod(sizes) * 4 > _MOST_UNIT_BYTES:
            problems.append(
                f"the shape of {shown(self.name)} must have positive sizes and at most two token axes; received "
                f"{shown(self.shape)}"
            )
        if self.kept and (not self.shape or self.token_axes):
            problems.append(
                f"the shape of {shown(self.name)} must have kept tokens first, and no token axes; received "
                f"{shown(self.shape)}"
            )
        vector = self.shape[1:] if self.kept else self.shape
        size = vector[-1] if vector else None
        indices = self.encoding in INDEX_ENCODINGS
        fits = size is not None and (not indices or size <= (self.limit or 0) <= 1 << 16)
        if not problems and (
            (self.encoding == "scaled") != (self.dtype == "int8")
            or indices != (self.limit is not None)
            or (indices and self.dtype not in INTEGER_DTYPES)
            or (self.encoding != "plain" and not fits)
        ):
            problems.append(
                f"the encoding of {shown(self.name)} must fit its type and shape; received {self.encoding} for "
                f"{self.dtype}, {shown(self.shape)} and limit {self.limit}"
            )
        raise_if_any(problems, "target")

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit}"
        return f"{self.dtype} {shown(list(self.shape))}{limit}, {self.encoding}{', kept tokens' * self.kept}"

    @property
    def holds_indices(self) -> bool:
        """Whether the numbers are positions or indices."""
        return self.dtype in INTEGER_DTYPES

    @property
    def decoded_dtype(self) -> np.dtype:
        """Type after decoding."""
        return np.dtype(np.float32) if self.encoding == "scaled" else DTYPES[self.dtype]

    @property
    def token_axes(self) -> int:
        """Number of token axes: 0, 1 (tokens) or 2 (token pairs)."""
        return self.shape.count(None)

    @property
    def unit_bytes(self) -> int:
        """Bytes per example, token or token pair, for 0, 1 or 2 token axes; or per kept token."""
        fixed = [size for size in self.shape[self.kept :] if size is not None]
        if self.encoding == "plain":
            return int(np.prod(fixed, dtype=np.int64)) * DTYPES[self.dtype].itemsize
        vector = vector_bytes(self.encoding, self.dtype, fixed[-1], self.limit)
        return int(np.prod(fixed[:-1], dtype=np.int64)) * vector

    def units_of(self, lengths: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        """Returns each example's number of units: 1, tokens, token pairs, or kept tokens; see `unit_bytes`.

        Args:
          lengths: number of tokens in each example.
          candidates: number of tokens that each example may keep; None if unlimited.
        """
        if not self.kept:
            return lengths**self.token_axes
        rows = np.full_like(lengths, self.shape[0])
        return rows if candidates is None else np.minimum(rows, candidates)

    def bytes_of(self, lengths: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        """Returns each example's size in bytes, int64; see `units_of`."""
        return self.unit_bytes * self.units_of(np.asarray(lengths, np.int64), candidates)

    def shape_of(self, length: int, candidates: int | None = None) -> tuple[int, ...]:
        """Returns the shape for an example with `length` tokens; see `units_of`."""
        shape = tuple(length if size is None else size for size in self.shape)
        return (min(shape[0], candidates), *shape[1:]) if self.kept and candidates is not None else shape

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Encodes values as uint8, one dimension."""
        return encode(values, self.encoding, self.dtype, self.limit).reshape(-1)

    def decode(self, content: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Decodes uint8 bytes to values with a shape."""
        rows = content.reshape(math.prod(shape[:-1]), -1)
        return decode(rows, self.encoding, self.dtype, shape[-1], self.limit).reshape(shape)


def record_bytes(
    targets: Sequence[TargetSpec], lengths: np.ndarray, candidates: np.ndarray | None = None
) -> np.ndarray:
    """Returns each example's record size in bytes, int64 `[N]`; see `TargetSpec.units_of`."""
    return sum((target.bytes_of(lengths, candidates) for target in targets), np.zeros(len(lengths), np.int64))
