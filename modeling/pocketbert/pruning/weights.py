"""Cuts a pruned model's weights out of its teacher's, and factors the word embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.directory import DirectoryDescription, write_directory
from pocketbert.configs import EncoderConfig
from pocketbert.pruning.config import PruneConfig
from pocketbert.pruning.importance import Importance, kept

_LAYERS = "encoder.layers."
_TABLE = "encoder.embeddings.word.table"
_ROWS_A_CALL = 8192


def write_pruned(
    tensors: Mapping[str, np.ndarray],
    teacher: DirectoryDescription,
    importance: Importance,
    config: PruneConfig,
    folder: Path,
) -> float:
    """Writes a pruned model's directory; returns the fraction of the word embedding's squared norm in its factors."""
    pruned = config.pruned(teacher.config)
    tensors, energy = prune_weights(tensors, teacher.config, pruned, importance, config.kept_layers(teacher.config))
    write_directory(folder, pruned, teacher.tasks, tensors, teacher.vocabulary, overwrite=True)
    return energy


def prune_weights(
    tensors: Mapping[str, np.ndarray],
    teacher: EncoderConfig,
    pruned: EncoderConfig,
    importance: Importance,
    layers: Sequence[int],
) -> tuple[dict[str, np.ndarray], float]:
    """Cuts a pruned model's weights out of its teacher's.

    In each remaining layer, the most important heads and neurons stay in order: if nothing is removed, a model has the
    same bits. Embeddings, norms, pooler and task heads stay.

    Args:
      tensors: the teacher's weights by path.
      teacher: the teacher's architecture.
      pruned: the pruned model's architecture.
      importance: the teacher's head and neuron importance.
      layers: teacher layers that stay, counted from 1.
    Returns:
      The weights by path, and the fraction of the word embedding's squared norm in its factors.
    """
    result, energy = {path: array for path, array in tensors.items() if not path.startswith(_LAYERS)}, 1.0
    if pruned.embedding_projection != teacher.embedding_projection:
        factors, energy = factor(tensors[_TABLE], pruned.embedding_size)
        result[_TABLE], result["encoder.embeddings.projection.kernel"] = factors
    size = teacher.head_size
    for index, stored in enumerate(teacher.sources(layers)):
        source, target = f"{_LAYERS}{stored}.", f"{_LAYERS}{index}."
        result |= {
            target + path.removeprefix(source): array for path, array in tensors.items() if path.startswith(source)
        }
        heads = kept(importance.heads[stored], pruned.num_attention_heads)
        columns = (heads[:, None] * size + np.arange(size)).ravel()
        neurons = kept(importance.neurons[stored], pruned.intermediate_size)
        cuts = {f"attention.{name}": columns for name in ("query", "key", "value")}
        cuts["feed_forwards.0.intermediate"] = neurons
        for name, chosen in cuts.items():
            result[f"{target}{name}.kernel"] = tensors[f"{source}{name}.kernel"][:, chosen]
            if f"{source}{name}.bias" in tensors:
                result[f"{target}{name}.bias"] = tensors[f"{source}{name}.bias"][chosen]
        for name, chosen in (("attention.output", columns), ("feed_forwards.0.output", neurons)):
            result[f"{target}{name}.kernel"] = tensors[f"{source}{name}.kernel"][chosen]
    return result, energy


def factor(table: np.ndarray, rank: int) -> tuple[tuple[np.ndarray, np.ndarray], float]:
    """Factors a table by a truncated singular value decomposition, table = U·S·Wᵀ.

    W are the eigenvectors of tableᵀ·table in float64, and U·S is table·W, so the whole table needs no decomposition.
    Each vector in W has a positive largest entry, since signs are arbitrary.

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
