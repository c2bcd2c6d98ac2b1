"""Embedding similarity and search, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Similarities computed at once; bounds the memory to 64 MB.
_CELLS_AT_ONCE = 1 << 24


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors [N, D] to length 1, float32; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine between vectors [N, D] in the same row, float64 [N]."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.sum(first * second, axis=1) / np.where(lengths > 0, lengths, 1.0)


def search(queries: np.ndarray, documents: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the nearest documents by cosine, exactly.

    Args:
      queries: [Q, D].
      documents: [N, D].
      top_k: number of documents; at most N are returned.
    Returns:
      Document indices, int64 [Q, K], nearest first, ties in order; and cosines, float32 [Q, K].
    """
    queries, documents = unit(queries), unit(documents)
    top_k, step = min(top_k, len(documents)), max(1, _CELLS_AT_ONCE // max(len(documents), 1))
    positions, values = [], []
    for start in range(0, len(queries), step):
        similar = queries[start : start + step] @ documents.T
        order = np.argsort(-similar, axis=1, kind="stable")[:, :top_k]
        positions.append(order)
        values.append(np.take_along_axis(similar, order, axis=1))
    if not positions:
        return np.zeros((0, top_k), np.int64), np.zeros((0, top_k), np.float32)
    return np.concatenate(positions), np.concatenate(values)


def ranks(
    queries: np.ndarray, documents: np.ndarray, right: np.ndarray, ignored: Sequence[Sequence[int]] | None = None
) -> np.ndarray:
    """The rank of each query's right document among all documents, from 0, int64 [Q].

    Args:
      queries: [Q, D].
      documents: [N, D].
      right: int [Q], document indices.
      ignored: for each query, indices of documents that do not compete; None for none.
    """
    queries, documents = unit(queries), unit(documents)
    step, ranks_found = max(1, _CELLS_AT_ONCE // max(len(documents), 1)), []
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        similar = queries[part] @ documents.T
        right_similarity = np.take_along_axis(similar, right[part, np.newaxis], axis=1)
        better = similar > right_similarity
        for row, columns in enumerate(ignored[part] if ignored is not None else ()):
            better[row, columns] = False
        ranks_found.append(better.sum(axis=1))
    return np.concatenate(ranks_found) if ranks_found else np.zeros(0, np.int64)
