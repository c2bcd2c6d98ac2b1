"""Structures: smaller networks cut out of a teacher. The module imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from pocketbert.checkpoints.directory import ModelDirectory
from pocketbert.configs import EncoderConfig
from pocketbert.pruning.config import PruneConfig, can_be_narrowed
from pocketbert.pruning.importance import Importance
from pocketbert.pruning.weights import write_pruned

# Shares of the teacher's heads and neurons in each kind of structure. One is for all layers only: it is nearest to the
# teacher, for limits near its latency or for a small loss.
_ALL_LAYERS = (1.0, 0.75)
_WIDTHS = ((1.0, 1.0), _ALL_LAYERS, (1.0, 0.5), (0.5, 0.5), (0.5, 0.25))
# Which layers stay, in the order in which they are tried. Of half width, `compress` has chosen the first ones in each
# cell of docs/results/bake-off.md with fewer layers.
_LAYERS = ("first", "even", "last")
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
      first_token: whether a new head reads the first token, which saves most of the last layer.
    """

    layers: tuple[int, ...]
    heads: int
    intermediate_size: int
    embedding_rank: int | None = None
    first_token: bool = False

    @property
    def name(self) -> str:
        """Name of a folder: `layers=2-4-6,heads=12,neurons=768`."""
        rank = "" if self.embedding_rank is None else f",rank={self.embedding_rank}"
        layers, first = "-".join(map(str, self.layers)), ",first-token" if self.first_token else ""
        return f"layers={layers},heads={self.heads},neurons={self.intermediate_size}{rank}{first}"

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def is_part_of(self, other: Structure) -> bool:
        """Whether its layers are among another's, with no more heads and neurons in each."""
        narrower = self.heads <= other.heads and self.intermediate_size <= other.intermediate_size
        return self != other and {*self.layers} <= {*other.layers} and narrower

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


def can_be_cut(teacher: EncoderConfig) -> bool:
    """Whether networks can be cut out of a teacher: its layers are BERT's or MobileBERT's, and share no weights."""
    return teacher.block in ("plain", "bottleneck") and teacher.layer_groups is None


def structures(
    teacher: EncoderConfig, *, small_embedding: bool, mean_pooling: bool = False
) -> Iterator[tuple[str, Structure]]:
    """All structures with their kinds: which layers stay, and how wide they are.

    Args:
      teacher: architecture of the teacher. One that cannot be pruned keeps its width.
      small_embedding: also with a factored word embedding.
      mean_pooling: whether the teacher's head reads the mean of all tokens; then others read the first one.

    Yields:
      Kind and structure; a kind has one structure for each number of layers, with the deepest first.
    """
    heads, neurons, total = teacher.num_attention_heads, teacher.intermediate_size, teacher.num_layers
    widths = _WIDTHS if can_be_narrowed(teacher) else _WIDTHS[:1]
    # Layers that share their weights are the same, whichever stay.
    choices = _LAYERS if teacher.layer_groups is None else _LAYERS[:1]
    factored = small_embedding and can_be_narrowed(teacher) and teacher.hidden_size > SMALL_RANK
    for rank, first_token, (of_heads, of_neurons), which in itertools.product(
        (None, SMALL_RANK) if factored else (None,), (False, True) if mean_pooling else (False,), widths, choices
    ):
        kind = f"{which} layers, {of_heads:g} of heads, {of_neurons:g} of neurons, rank {rank}"
        for count in range(total, total - 1 if (of_heads, of_neurons) == _ALL_LAYERS else 0, -1):
            layers = _layers(which, count, total)
            if teacher.layer_groups is not None and count % teacher.layer_groups:
                continue
            # All layers are the first ones, and the last one is an even one.
            if layers in [_layers(other, count, total) for other in _LAYERS[: _LAYERS.index(which)]]:
                continue
            if teacher.rotary is not None and teacher.rotary.unlike_layers(layers):
                continue
            yield (
                f"{kind}, first token" if first_token else kind,
                Structure(
                    layers=layers,
                    heads=max(int(heads * of_heads), 1),
                    intermediate_size=max(int(neurons * of_neurons), 1),
                    embedding_rank=rank,
                    first_token=first_token,
                ),
            )


def write_student(teacher: ModelDirectory, importance: Importance | None, structure: Structure, folder: Path) -> None:
    """Writes the model directory of a structure with the teacher's weights.

    Args:
      teacher: the teacher with its weights.
      importance: importance of its heads and neurons; None if the structure keeps all of them.
      structure: the structure.
      folder: the model directory.
    """
    if structure.first_token:
        encoder = {path: array for path, array in teacher.tensors.items() if path.startswith("encoder.")}
        teacher = dataclasses.replace(teacher, tasks=(), tensors=encoder)
    parts = importance or Importance.none(teacher.config)
    write_pruned(teacher.tensors, teacher, parts, structure.sizes, folder)


def _layers(which: str, count: int, total: int) -> tuple[int, ...]:
    """`count` of `total` layers, counted from 1: the first, the last, or evenly with the last, as in TinyBERT's map."""
    if which != "even":
        start = 0 if which == "first" else total - count
        return tuple(range(start + 1, start + count + 1))
    return even_layers(count, total)


def even_layers(count: int, total: int) -> tuple[int, ...]:
    """`count` of `total` layers, counted from 1, evenly with the last, as in TinyBERT's map."""
    return tuple(round((index + 1) * total / count) for index in range(count))
