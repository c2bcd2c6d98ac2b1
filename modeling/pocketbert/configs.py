"""Model configurations as frozen dataclasses: one family is one configuration.

Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from pocketbert.errors import UserError, raise_if_any

Activation = Literal["gelu", "gelu_tanh", "relu"]
Norm = Literal["layer_norm", "no_norm", "identity"]
Pooler = Literal["tanh", "first_token", "none"]
EmbeddingProjection = Literal["none", "word", "output"]
QueryKeySource = Literal["shared", "raw", "bottleneck"]
ModelType = Literal["bert", "roberta", "mobilebert", "distilbert"]
# A key of `TASK_RULES`.
TaskKind: TypeAlias = str
# BERT's pretraining, in the order of their logits.
PRETRAINING_HEADS: tuple[TaskKind, ...] = ("masked_lm", "next_sentence")

# Far above every published encoder, and far below what would hang or exhaust a machine.
_MOST_SIZE = 1 << 20
_MOST = {
    "vocab_size": 1 << 24,
    "num_layers": 1024,
    "num_feedforward_networks": 64,
    "layer_norm_eps": 1,
    "initializer_range": 1,
}
_MOST_WEIGHTS = 1 << 34


@dataclass(frozen=True, kw_only=True)
class BottleneckConfig:
    """The linear maps around a MobileBERT or IB-BERT block (MobileBERT, section 3.1).

    Attributes:
      size: width inside the block (h_intra): 128 for MobileBERT, 1024 for IB-BERT.
      query_key: what query and key are made from. `raw`: the block's input, as the paper draws it.
        `shared`: a second bottleneck of their own, as the released weights have it. `bottleneck`: the
        block's one bottleneck, which then makes the values too (TINY).
    """

    size: int
    query_key: QueryKeySource

    def __post_init__(self) -> None:
        problems = []
        if not 0 < self.size <= _MOST_SIZE:
            problems.append(f"size must lie between 1 and {_MOST_SIZE}; received {self.size}")
        problems += _one_of("query_key", self.query_key, QueryKeySource)
        raise_if_any(problems, "BottleneckConfig")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """An encoder's architecture. Sizes are counts of features, tokens or rows.

    Attributes:
      model_type: the family whose file layout the model uses.
      vocab_size: rows of the word table.
      hidden_size: width of the feature maps between layers (h_inter).
      num_layers: number of layers.
      num_attention_heads: heads a layer.
      head_size: width of a head; the heads together are `attention_size` wide.
      intermediate_size: inner width of a feed-forward network.
      num_feedforward_networks: stacked feed-forward networks a layer (MobileBERT, section 3.2).
      activation: `gelu` is the exact one (erf), `gelu_tanh` its approximation, or `relu`.
      norm: `layer_norm`, `no_norm` (MobileBERT, eq. 1), or `identity`, which only an export's graph optimization makes.
      layer_norm_eps: added to the variance in `layer_norm`.
      embedding_layer_norm_eps: the same, in the embedding's norm. Equal to `layer_norm_eps` but for MobileBERT with
        `layer_norm` as transformers' PyTorch class computes it, which leaves torch's default of 1e-5 there.
      embedding_size: width of the word table.
      embedding_projection: the linear map from `embedding_size` to `hidden_size`. `word`: applied to the
        word vectors alone, positions and segments being `hidden_size` wide. `output`: applied last, after
        the norm, positions and segments being `embedding_size` wide. `none`: the two sizes are equal.
      trigram: each word vector is joined by its neighbours' before the map (MobileBERT, section 3.4).
      max_position_embeddings: the longest sequence, in tokens.
      position_offset: rows at the start of the position table that no token uses (RoBERTa: 2).
      type_vocab_size: rows of the segment table; 0 where there is none (DistilBERT).
      pad_token_id: the id that fills up a batch.
      bottleneck: linear maps around each block, or None.
      pooler: what `pooled_output` is: `tanh` of a linear map of the first token, the raw `first_token`,
        or `none` at all.
      hidden_dropout: rate after the embedding and each sub-layer, in training.
      attention_dropout: rate on the attention probabilities, in training.
      initializer_range: standard deviation of fresh weights.
    """

    model_type: ModelType
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

    def __post_init__(self) -> None:
        problems = []
        positive = (
            "vocab_size hidden_size num_layers num_attention_heads head_size intermediate_size "
            "num_feedforward_networks embedding_size max_position_embeddings layer_norm_eps embedding_layer_norm_eps "
            "initializer_range"
        )
        for name in positive.split():
            most = _MOST.get(name, 1 if name.endswith("_epsilon") else _MOST_SIZE)
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
            if not 0 <= getattr(self, name) <= _MOST_SIZE:
                problems.append(f"{name} must lie between 0 and {_MOST_SIZE}; received {getattr(self, name)}")
        if not 0 <= self.pad_token_id < max(self.vocab_size, 1):
            problems.append(
                f"pad_token_id must be an id below vocab_size={self.vocab_size}; received {self.pad_token_id}"
            )
        problems += _one_of("model_type", self.model_type, ModelType)
        problems += _one_of("activation", self.activation, Activation)
        problems += _one_of("norm", self.norm, Norm)
        problems += _one_of("pooler", self.pooler, Pooler)
        problems += _one_of("embedding_projection", self.embedding_projection, EmbeddingProjection)
        if self.embedding_projection == "none" and self.embedding_size != self.hidden_size:
            problems.append(
                f"embedding_size={self.embedding_size} differs from hidden_size={self.hidden_size}, which needs "
                "embedding_projection='word' or 'output'"
            )
        if self.trigram and self.embedding_projection != "word":
            problems.append(f"trigram needs embedding_projection='word'; received {self.embedding_projection!r}")
        raise_if_any(problems, "EncoderConfig")

    @property
    def attention_size(self) -> int:
        """Width of all heads together."""
        return self.num_attention_heads * self.head_size

    @property
    def block_size(self) -> int:
        """Width inside a layer: the bottleneck's if there is one, else the feature map's."""
        return self.bottleneck.size if self.bottleneck else self.hidden_size

    @property
    def sentence_activation(self) -> Literal["tanh", "relu"]:
        """Between the two linear maps of a sentence head that has no pooler below it."""
        return "relu" if self.model_type == "distilbert" else "tanh"

    @property
    def num_position_rows(self) -> int:
        """Rows of the position table."""
        return self.max_position_embeddings + self.position_offset

    def _least_weights(self) -> int:
        """The large matrices alone: tables, attention and feed-forward networks."""
        tables = (self.vocab_size + self.max_position_embeddings + self.type_vocab_size) * self.embedding_size
        attention = 4 * self.block_size * self.attention_size
        return tables + self.num_layers * (
            attention + 2 * self.num_feedforward_networks * self.block_size * self.intermediate_size
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderConfig:
        """The configuration that `dataclasses.asdict` made the values of."""
        bottleneck = values["bottleneck"]
        return cls(**{**values, "bottleneck": BottleneckConfig(**bottleneck) if bottleneck else None})

    def replace(self, **changes: object) -> EncoderConfig:
        """A copy with some fields changed, checked again."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class TaskRules:
    """Rules for the configuration of a kind of task; `pocketbert.tasks` has the rest.

    Attributes:
      min_labels: the fewest labels; 0 for a kind that has none.
      has_null_threshold: whether it may have a `null_threshold`.
    """

    min_labels: int = 0
    has_null_threshold: bool = False


# `pocketbert.tasks.registry.register` adds the rows of other tasks.
TASK_RULES: dict[str, TaskRules] = {
    "classification": TaskRules(min_labels=2),
    "multi_label": TaskRules(min_labels=1),
    "regression": TaskRules(),
    "masked_lm": TaskRules(),
    "next_sentence": TaskRules(),
    "span": TaskRules(has_null_threshold=True),
}


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """A head on an encoder and what its outputs mean.

    Attributes:
      kind: the head's form.
      name: the task's name, for example `sst2`; empty if it has none. Several heads of one kind need one each.
      labels: the texts of the classes, or of multi_label's labels, in the order of the logits; empty for other kinds. A
        list becomes a tuple. Each is one line, and no two differ in case or white space alone.
      dropout: rate in front of the head, in training.
      null_threshold: of spans: a question has no answer where the paragraph's first token, as start and end, scores
        higher than the best answer by more than this; None where every question is answered.
    """

    kind: TaskKind
    name: str = ""
    labels: tuple[str, ...] = ()
    dropout: float = 0.1
    null_threshold: float | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in TASK_RULES:
            problems.append(f"kind must be one of {', '.join(TASK_RULES)}; received {self.kind!r}")
        rules = TASK_RULES.get(self.kind, TaskRules())
        if isinstance(self.labels, str):
            problems.append(f"labels must be a list of texts; received {self.labels!r}")
        else:
            object.__setattr__(self, "labels", tuple(self.labels))
            problems += _label_problems(self.labels)
        if rules.min_labels > len(self.labels):
            least = "two labels" if rules.min_labels == 2 else "one label"
            problems.append(f"{self.kind} needs at least {least}; received {_shown(self.labels) or 'none'}")
        elif self.labels and not rules.min_labels:
            labelled = " and ".join(kind for kind, each in TASK_RULES.items() if each.min_labels)
            problems.append(f"only {labelled} have labels; received {self.labels} with kind={self.kind!r}")
        if not 0 <= self.dropout < 1:
            problems.append(f"dropout must lie in [0, 1); received {self.dropout}")
        if self.null_threshold is not None and not rules.has_null_threshold:
            problems.append(f"only spans have a null_threshold; received {self.null_threshold} with kind={self.kind!r}")
        raise_if_any(problems, "TaskConfig")


def head_names(tasks: Sequence[TaskConfig]) -> tuple[str, ...]:
    """Names of a model's heads: their kinds, or their tasks' names if several have one kind.

    Args:
      tasks: the heads on one encoder.
    Raises:
      UserError: two heads would have one name, or a head that needs a name has none.
    """
    kinds = [task.kind for task in tasks]
    names = tuple(task.kind if kinds.count(task.kind) == 1 else task.name for task in tasks)
    if len(set(names)) != len(names) or not all(re.fullmatch(r"[\w-]+", name) for name in names):
        raise UserError(
            "tasks of one kind need names that differ, of letters, digits, '-' and '_', for example "
            f"TaskConfig(kind='classification', name='sst2', ...); received {', '.join(map(repr, names))}"
        )
    return names


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How a WordPiece tokenizer cleans up text, in the words of tokenizer_config.json.

    Attributes:
      lowercase: lower-case all letters.
      strip_accents: decompose letters and drop their accents; None follows `lowercase`, and becomes its value.
      tokenize_chinese_chars: make each CJK ideograph a word of its own.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def __post_init__(self) -> None:
        if self.strip_accents is None:
            object.__setattr__(self, "strip_accents", self.lowercase)
        problems = [
            f"{field.name} must be true or false; received {getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if not isinstance(getattr(self, field.name), bool)
        ]
        raise_if_any(problems, "TokenizerConfig")

    def require_default(self, subject: str, remedy: str) -> None:
        """Raises `UserError` unless `lowercase` says everything: for files that record nothing else."""
        if self != TokenizerConfig(lowercase=self.lowercase):
            raise UserError(
                f"{subject} needs a tokenizer with strip_accents={self.lowercase} and tokenize_chinese_chars=True; "
                f"received {self.strip_accents} and {self.tokenize_chinese_chars}; {remedy}"
            )


@dataclass(frozen=True, kw_only=True)
class GraphForm:
    """How an encoder's graph is laid out; the mathematics is the same in every form.

    Training uses the plain form; export chooses others (`pocketbert_export.graph_optimization`).

    Attributes:
      fused_projections: linear maps of one input are one matrix product.
      first_token_only: the last layer's outputs are computed for the first token alone, so that
        `sequence_output` has length 1.
      padding_bias: what is added to the attention logits of padding, so that no softmax sees it. NoNorm does not bound
        the logits (thousands were seen), so -1e4 would leak.
    """

    fused_projections: bool = False
    first_token_only: bool = False
    padding_bias: float = -1e9


def _label_problems(labels: tuple[str, ...]) -> list[str]:
    """Lists problems of labels: they must be distinct lines of a file."""
    broken = [label for label in labels if not (isinstance(label, str) and _is_one_line(label))]
    if broken:
        return [f"labels must be one line of text each; received {_shown(broken)}"]
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    return [
        f"labels must differ in more than case or white space; received {_shown(same)}"
        for same in alike.values()
        if len(same) > 1
    ]


def _is_one_line(text: str) -> bool:
    """Whether a text has no white space around it, no line break, no control character and no half of a character."""
    broken = any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text)
    return bool(text) and text == text.strip() and not broken


def _shown(values: Sequence[object]) -> str:
    return ", ".join(map(repr, values))


def _one_of(name: str, value: object, choices: object) -> list[str]:
    accepted = get_args(choices)
    return [] if value in accepted else [f"{name} must be one of {', '.join(accepted)}; received {value!r}"]
