"""Structures: smaller networks cut out of a teacher. The module imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from pocketbert.checkpoints.directory import ModelDirectory
from pocketbert.configs import EncoderConfig
from pocketbert.pruning.config import PruneConfig, can_be_narrowed
from pocketbert.pruning.importance import Importance
from pocketbert.pruning.weights import write_pruned

# Shares of the teacher's heads and neurons in each kind of structure.
_WIDTHS = ((1.0, 1.0), (1.0, 0.5), (0.5, 0.5), (0.5, 0.25))
# Rank of the factored word embedding, for limits of the size.
SMALL_RANK = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """A network that starts from parts of its teacher's weights.

    Attributes:
      layers: layers of the teacher, counted from 1.
      heads: attention heads in each layer, the most important ones (ROSITA).
      intermediate_size: feed-forward neurons in each layer, the most important ones.
      embedding_rank: rank of the factored word embedding; None leaves it whole.
    """

    layers: tuple[int, ...]
    heads: int
    intermediate_size: int
    embedding_rank: int | None = None

    @property
    def name(self) -> str:
        """Name of a folder: `layers=2-4-6,heads=12,neurons=768`."""
        rank = "" if self.embedding_rank is None else f",rank={self.embedding_rank}"
        layers = "-".join(map(str, self.layers))
        return f"layers={layers},heads={self.heads},neurons={self.intermediate_size}{rank}"

    def config(self, teacher: EncoderConfig) -> EncoderConfig:
        """The architecture."""
        return self.sizes.pruned(teacher)

    @property
    def sizes(self) -> PruneConfig:
        """The options of `pocketbert.prune`."""
        return PruneConfig(
            teacher_layers=self.layers,
            heads=self.heads,
            intermediate_size=self.intermediate_size,
            embedding_rank=self.embedding_rank,
            max_length=3,
        )


def structures(teacher: EncoderConfig, *, small_embedding: bool) -> Iterator[tuple[str, Structure]]:
    """All structures with their kinds: which layers stay, and how wide they are.

    Args:
      teacher: architecture of the teacher. One that cannot be pruned keeps its width.
      small_embedding: also with a factored word embedding.

    Yields:
      Kind and structure; a kind has one structure for each number of layers, with the deepest first.
    """
    heads, neurons = teacher.num_attention_heads, teacher.intermediate_size
    widths = _WIDTHS if can_be_pruned(teacher) else _WIDTHS[:1]
    factored = small_embedding and can_be_pruned(teacher) and teacher.hidden_size > SMALL_RANK
    ranks = (None, SMALL_RANK) if factored else (None,)
    for rank in ranks:
        for of_heads, of_neurons in widths:
            kept_heads, kept_neurons = max(int(heads * of_heads), 1), max(int(neurons * of_neurons), 1)
            for which in ("even", "first"):
                for count in range(teacher.num_layers, 0, -1):
                    layers = _layers(which, count, teacher.num_layers)
                    # All layers are the first ones, too.
                    if which == "first" and layers == _layers("even", count, teacher.num_layers):
                        continue
                    structure = Structure(
                        layers=layers, heads=kept_heads, intermediate_size=kept_neurons, embedding_rank=rank
                    )
                    yield f"{which} layers, {of_heads:g} of heads, {of_neurons:g} of neurons, rank {rank}", structure


def can_be_pruned(teacher: EncoderConfig) -> bool:
    """Whether heads, neurons and the rank of the embedding can be reduced; layers always can."""
    return can_be_narrowed(teacher)


def cuts_widths(structure: Structure, teacher: EncoderConfig) -> bool:
    """Whether a structure has fewer heads or neurons than its teacher."""
    return structure.sizes.cuts_widths(teacher)


def write_student(teacher: ModelDirectory, importance: Importance | None, structure: Structure, folder: Path) -> None:
    """Writes the model directory of a structure with the teacher's weights.

    Args:
      teacher: the teacher with its weights.
      importance: importance of its heads and neurons; None if the structure keeps all of them.
      structure: the structure.
      folder: the model directory.
    """
    write_pruned(teacher.tensors, teacher, importance or Importance.none(teacher.config), structure.sizes, folder)


def _layers(which: str, count: int, total: int) -> tuple[int, ...]:
    """`count` of `total` layers, counted from 1: the first, or evenly with the last one, as in TinyBERT's map."""
    if which == "first":
        return tuple(range(1, count + 1))
    return tuple(round((index + 1) * total / count) for index in range(count))
