"""Encoder configurations as frozen dataclasses, without TensorFlow.

Those for tasks and tokenizers are in the runtime (`pocketbert_runtime.task_config`, `tokenizer_config`); their names
are public here, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pocketbert.block_configs import MOST_SIZE
from pocketbert.block_configs import BlockKind as BlockKind
from pocketbert.block_configs import BottleneckConfig as BottleneckConfig
from pocketbert.block_configs import QueryKeySource as QueryKeySource
from pocketbert.block_configs import RelativeConfig as RelativeConfig
from pocketbert.block_configs import RotaryConfig as RotaryConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.heads_config import head_names as head_names
from pocketbert_runtime.errors import literal_problems
from pocketbert_runtime.task_config import TASK_RULES as TASK_RULES
from pocketbert_runtime.task_config import ScoreActivation as ScoreActivation
from pocketbert_runtime.task_config import TaskConfig as TaskConfig
from pocketbert_runtime.task_config import TaskKind as TaskKind
from pocketbert_runtime.task_config import TaskRules as TaskRules
from pocketbert_runtime.tokenizer_config import TokenizerConfig as TokenizerConfig
from pocketbert_runtime.tokenizer_config import TokenizerKind as TokenizerKind

Activation = Literal["gelu", "gelu_tanh", "relu"]
Norm = Literal["layer_norm", "no_norm", "identity", "rms"]
Pooler = Literal["tanh", "first_token", "none"]
EmbeddingProjection = Literal["none", "word", "factors", "output"]
# The families. Each row has a file in `checkpoints/families`; `registry.register` there adds others.
MODEL_TYPES = [
    "bert",
    "roberta",
    "xlm-roberta",
    "mobilebert",
    "distilbert",
    "electra",
    "camembert",
    "albert",
    "deberta-v2",
    "modernbert",
]
# BERT's pretraining tasks, in the order of their logits.
PRETRAINING_HEADS: tuple[TaskKind, ...] = ("masked_lm", "next_sentence")

# Like `MOST_SIZE`, for fields with other limits.
_MOST = {
    "vocab_size": 1 << 24,
    "num_layers": 1024,
    "num_feedforward_networks": 64,
    **dict.fromkeys(("layer_norm_eps", "embedding_layer_norm_eps", "initializer_range"), 1),
}
_MOST_WEIGHTS = 1 << 34


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """An encoder's architecture. Sizes count features, tokens or rows.

    Attributes:
      model_type: family; it fixes the file layout. XLM-R (`xlm-roberta`) computes the same function as RoBERTa.
      vocab_size: rows in the word embedding table.
      hidden_size: width between layers (h_inter).
      num_layers: number of layers.
      num_attention_heads: heads per layer.
      head_size: width per head; all heads together are `attention_size` wide.
      intermediate_size: inner width of a feed-forward network.
      num_feedforward_networks: stacked feed-forward networks per layer (MobileBERT, section 3.2).
      feedforward: expressions for the feed-forward networks (EfficientBERT), or None. They replace `activation` in the
        layers and `num_feedforward_networks`, which must be 1, and use part of `intermediate_size`.
      activation: `gelu` (exact, erf), `gelu_tanh` (approximation) or `relu`.
      norm: `layer_norm`, `no_norm` (MobileBERT, eq. 1), or `identity` and `rms` (from export's graph optimizations).
      layer_norm_eps: added to the variance in `layer_norm`.
      embedding_layer_norm_eps: the same for the embedding's norm. It differs for MobileBERT with `layer_norm`:
        transformers' PyTorch class keeps torch's default, 1e-5, there.
      embedding_size: width of the word embedding table.
      embedding_projection: position of the linear map from `embedding_size` to `hidden_size`. `word`: after the word
        embeddings; positions and segments are `hidden_size` wide. `factors`: the same without a bias, so that table and
        map factorize one table (ROSITA). `output`: after the norm; positions and segments are `embedding_size` wide.
        `none`: the sizes are equal.
      trigram: concatenate each word embedding with its neighbours before the map (MobileBERT, section 3.4).
      max_position_embeddings: maximum sequence length in tokens.
      position_offset: unused rows at the start of the position table (RoBERTa and XLM-R: 2).
      type_vocab_size: rows in the segment table; 0 for none (DistilBERT).
      pad_token_id: padding token's id.
      bottleneck: linear maps around each block, or None.
      rotary: ModernBERT's block instead of BERT's, or None. There is no position table then.
      relative: DeBERTa's attention instead of BERT's, or None. There is no position table then.
      layer_groups: groups of consecutive layers that share their weights (ALBERT: 1), or None if none are shared.
      pooler: `pooled_output`: `tanh` (a linear and a tanh layer on the first token), `first_token` or `none`.
      hidden_dropout: dropout rate after the embedding and each sub-layer.
      attention_dropout: dropout rate on the attention probabilities.
      initializer_range: standard deviation of initial weights.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_attention_heads: int
    head_size: int
    intermediate_size: int
    num_feedforward_networks: int
    activation: Activation
    norm: Norm
    layer_norm_eps: float
    embedding_layer_norm_eps: float
    embedding_size: int
    embedding_projection: EmbeddingProjection
    trigram: bool
    max_position_embeddings: int
    position_offset: int
    type_vocab_size: int
    pad_token_id: int
    bottleneck: BottleneckConfig | None
    pooler: Pooler
    hidden_dropout: float
    attention_dropout: float
    initializer_range: float
    feedforward: FeedForwardConfig | None = None
    rotary: RotaryConfig | None = None
    relative: RelativeConfig | None = None
    layer_groups: int | None = None

    def __post_init__(self) -> None:
        problems = []
        positive = (
            "vocab_size hidden_size num_layers num_attention_heads head_size intermediate_size "
            "num_feedforward_networks embedding_size max_position_embeddings layer_norm_eps embedding_layer_norm_eps "
            "initializer_range"
        )
        for name in positive.split():
            most = _MOST.get(name, MOST_SIZE)
            if getattr(self, name) <= 0:
                problems.append(f"{name} must be positive; received {getattr(self, name)}")
            elif getattr(self, name) > most:
                problems.append(f"{name} must be at most {most}; received {getattr(self, name)}")
        for name in ("hidden_dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name} must lie in [0, 1); received {getattr(self, name)}")
        if not problems and self._least_weights() > _MOST_WEIGHTS:
            problems.append(
                f"the sizes must make at most 2**34 weights; received sizes that make {self._least_weights():.2g}"
            )
        for name in ("position_offset", "type_vocab_size"):
            if not 0 <= getattr(self, name) <= MOST_SIZE:
                problems.append(f"{name} must lie between 0 and {MOST_SIZE}; received {getattr(self, name)}")
        if not 0 <= self.pad_token_id < max(self.vocab_size, 1):
            problems.append(
                f"pad_token_id must be an id below vocab_size={self.vocab_size}; received {self.pad_token_id}"
            )
        if self.model_type not in MODEL_TYPES:
            problems.append(f"model_type must be one of {', '.join(MODEL_TYPES)}; received {self.model_type!r}")
        choices = {"activation": Activation, "norm": Norm, "pooler": Pooler}
        for name, accepted in {**choices, "embedding_projection": EmbeddingProjection}.items():
            problems += literal_problems(name, getattr(self, name), accepted)
        if self.embedding_projection == "none" and self.embedding_size != self.hidden_size:
            problems.append(
                f"embedding_size={self.embedding_size} differs from hidden_size={self.hidden_size}, which needs "
                "embedding_projection='word', 'factors' or 'output'"
            )
        if self.trigram and self.embedding_projection != "word":
            problems.append(f"trigram needs embedding_projection='word'; received {self.embedding_projection!r}")
        if self.feedforward is not None and not problems:
            problems += self.feedforward.problems(self)
        problems += self._combination_problems()
        raise_if_any(problems, "EncoderConfig")

    def _combination_problems(self) -> list[str]:
        """Lists fields that do not go together with the kind of block."""
        problems = []
        bert_only = {
            "bottleneck": self.bottleneck is not None,
            "feedforward": self.feedforward is not None,
            "trigram": self.trigram,
            "position_offset": self.position_offset > 0,
            "norm": self.norm != "layer_norm",
            "num_feedforward_networks": self.num_feedforward_networks > 1,
        }
        if self.rotary is not None:
            bert_only |= {
                "relative": self.relative is not None,
                "type_vocab_size": self.type_vocab_size > 0,
                "norm": self.norm not in ("layer_norm", "rms"),
                "pooler": self.pooler != "none",
                "embedding_projection": self.embedding_projection != "none",
                "layer_groups": self.layer_groups is not None,
            }
            if self.head_size % 2:
                problems.append(f"head_size must be even with rotary; received {self.head_size}")
        elif self.norm == "rms":
            problems.append("norm='rms' needs rotary; received none")
        if self.rotary is not None or self.relative is not None:
            field = "rotary" if self.rotary is not None else "relative"
            problems += [
                f"{name} does not go together with {field}; received {getattr(self, name)!r}"
                for name, is_set in bert_only.items()
                if is_set
            ]
        if self.layer_groups is not None and not 1 <= self.layer_groups <= self.num_layers:
            problems.append(
                f"layer_groups must lie between 1 and num_layers={self.num_layers}; received {self.layer_groups}"
            )
        if self.layer_groups is not None:
            # These differ between layers, or belong to blocks of other families.
            others = [name for name in ("bottleneck", "feedforward", "rotary", "relative") if getattr(self, name)]
            problems += [
                f"{name} does not go together with layer_groups; received {getattr(self, name)!r}"
                for name in [*others, *(["norm"] if self.norm != "layer_norm" else [])]
            ]
        return problems

    @property
    def block(self) -> BlockKind:
        """Kind of block. Code that holds for some kinds only names them, and refuses the others."""
        kinds: dict[BlockKind, object] = {
            "rotary": self.rotary,
            "relative": self.relative,
            "bottleneck": self.bottleneck,
        }
        return next((kind for kind, field in kinds.items() if field is not None), "plain")

    def block_problems(self, what: str, blocks: Sequence[str], remedy: str) -> list[str]:
        """Lists the problem if `what` does not hold for this kind of block; `blocks` are those for which it does."""
        if self.block in blocks:
            return []
        *others, last = blocks
        kinds = f"{', '.join(others)} and {last}" if others else last
        return [f"{what} is for {kinds} blocks; received {self.block} blocks ({self.model_type}); {remedy}"]

    @property
    def has_position_table(self) -> bool:
        """Whether embeddings of positions are added to those of words."""
        return self.rotary is None and self.relative is None

    @property
    def num_stored_layers(self) -> int:
        """Number of layers with weights of their own."""
        return self.layer_groups or self.num_layers

    def stored_layer(self, layer: int) -> int:
        """Returns which of the stored layers a layer reads its weights from. Both count from 0."""
        return layer * self.num_stored_layers // self.num_layers

    def sources(self, layers: Sequence[int]) -> list[int]:
        """Returns where the stored layers of an encoder with only these layers come from: stored layers of this one.

        Args:
          layers: layers of this encoder, counted from 1.
        Raises:
          UserError: two layers would share their weights, but do not share them here.
        """
        part = self.replace(num_layers=len(layers))
        sources: list[set[int]] = [set() for _ in range(part.num_stored_layers)]
        for index, layer in enumerate(layers):
            sources[part.stored_layer(index)].add(self.stored_layer(layer - 1))
        if any(len(stored) > 1 for stored in sources):
            raise UserError(
                f"layers that share their weights must come from one group; received layers "
                f"{','.join(map(str, layers))} with layer_groups={self.layer_groups}; take as many layers of each group"
            )
        return [stored for (stored,) in sources]

    @property
    def attention_size(self) -> int:
        """Width of all heads together."""
        return self.num_attention_heads * self.head_size

    @property
    def projects_words(self) -> bool:
        """Whether a linear map follows the word embeddings; then positions and segments are `hidden_size` wide."""
        return self.embedding_projection in ("word", "factors")

    @property
    def block_size(self) -> int:
        """Width inside a layer: the bottleneck's, or `hidden_size` without one."""
        return self.bottleneck.size if self.bottleneck else self.hidden_size

    @property
    def reads_padding_id(self) -> bool:
        """Whether `pad_token_id` changes outputs: it offsets positions, or is a neighbour in trigrams."""
        return self.position_offset > 0 or self.trigram

    @property
    def num_position_rows(self) -> int:
        """Rows in the position table."""
        return self.max_position_embeddings + self.position_offset

    def feedforward_networks(self, layer: int) -> tuple[int, int]:
        """Returns a layer's stacked feed-forward networks and their inner width. Layers count from 0."""
        if self.feedforward is None:
            return self.num_feedforward_networks, self.intermediate_size
        expression = self.feedforward.expression(layer)
        return expression.stacks, self.intermediate_size // expression.divisor

    def _least_weights(self) -> int:
        """Counts the weights in the large matrices: tables, attention and feed-forward networks."""
        tables = (self.vocab_size + self.max_position_embeddings + self.type_vocab_size) * self.embedding_size
        if self.relative is not None:
            tables += 2 * self.relative.buckets * self.hidden_size
        attention = 4 * self.block_size * self.attention_size
        return tables + self.num_stored_layers * (
            attention + 2 * self.num_feedforward_networks * self.block_size * self.intermediate_size
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderConfig:
        """Inverts `dataclasses.asdict`."""
        parts = {name: part(**values[name]) if values.get(name) else None for name, part in CONFIG_PARTS.items()}
        return cls(**{**values, **parts})

    def replace(self, **changes: object) -> EncoderConfig:
        """Returns a validated copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


# Fields of `EncoderConfig` with a class of their own.
CONFIG_PARTS: dict[str, type] = {
    "bottleneck": BottleneckConfig,
    "feedforward": FeedForwardConfig,
    "rotary": RotaryConfig,
    "relative": RelativeConfig,
}

# An option: the kind of a file's labels. A file of questions tells its own, and several heads have a kind each.
FileKind = Annotated[
    str, lambda: [kind for kind, row in TASK_RULES.items() if row.reads not in ("", "questions", "heads")]
]
