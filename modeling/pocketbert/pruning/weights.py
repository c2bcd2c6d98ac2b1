"""The weights of a pruned model, cut out of its teacher's, and the factors of the word embedding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.pruning.importance import Importance, kept

_TABLE = "encoder.embeddings.word.table"
_ROWS_A_CALL = 8192


def prune_weights(
    tensors: Mapping[str, np.ndarray], teacher: EncoderConfig, pruned: EncoderConfig, importance: Importance
) -> tuple[dict[str, np.ndarray], float]:
    """Cuts the weights of a pruned model out of its teacher's.

    The first layers stay. In each, the most important heads and neurons stay, in their order, so that a model from
    which nothing is removed has the same bits. Embeddings, norms, pooler and heads of tasks stay.

    Returns:
      The weights by path, and the fraction of the word embedding's squared norm in its factors.
    """
    result, energy = dict(tensors), 1.0
    if pruned.embedding_projection != teacher.embedding_projection:
        factors, energy = factor(tensors[_TABLE], pruned.embedding_size)
        result[_TABLE], result["encoder.embeddings.projection.kernel"] = factors
    size = teacher.head_size
    for index in range(teacher.num_layers):
        path = f"encoder.layers.{index}"
        if index >= pruned.num_layers:
            result = {name: array for name, array in result.items() if not name.startswith(f"{path}.")}
            continue
        heads = kept(importance.heads[index], pruned.num_attention_heads)
        columns = (heads[:, None] * size + np.arange(size)).ravel()
        neurons = kept(importance.neurons[index], pruned.intermediate_size)
        cuts = {f"attention.{name}": columns for name in ("query", "key", "value")}
        cuts["feed_forwards.0.intermediate"] = neurons
        for name, chosen in cuts.items():
            result[f"{path}.{name}.kernel"] = tensors[f"{path}.{name}.kernel"][:, chosen]
            result[f"{path}.{name}.bias"] = tensors[f"{path}.{name}.bias"][chosen]
        for name, chosen in (("attention.output", columns), ("feed_forwards.0.output", neurons)):
            result[f"{path}.{name}.kernel"] = tensors[f"{path}.{name}.kernel"][chosen]
    return result, energy


def factor(table: np.ndarray, rank: int) -> tuple[tuple[np.ndarray, np.ndarray], float]:
    """Factors a table by a truncated singular value decomposition, table = U·S·Wᵀ.

    W are the eigenvectors of tableᵀ·table in float64, and U·S is table·W, which needs no decomposition of the whole
    table. The largest entry of each vector in W is positive, since signs are arbitrary.

    Args:
      table: float32 [rows, width].
      rank: number of singular values to keep.

    Returns:
      U·S [rows, rank] and Wᵀ [rank, width], float32; and the fraction of the squared norm in them.
    """
    parts = [table[start : start + _ROWS_A_CALL].astype(np.float64) for start in range(0, len(table), _ROWS_A_CALL)]
    gram = np.sum([part.T @ part for part in parts], axis=0)
    squares, vectors = np.linalg.eigh(gram)
    # Ascending; rounding can make small ones negative.
    squares, vectors = np.maximum(squares[::-1], 0.0), vectors[:, ::-1][:, :rank]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(rank)])
    scaled = np.concatenate([part @ vectors for part in parts]).astype(np.float32)
    total = float(squares.sum())
    energy = min(float(squares[:rank].sum()) / total, 1.0) if total else 1.0
    return (scaled, vectors.T.astype(np.float32)), energy
