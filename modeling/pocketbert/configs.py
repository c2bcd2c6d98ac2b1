"""Configurations of encoders, tasks and tokenizers as frozen dataclasses, without TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pocketbert.decision_config import DecisionConfig, decision_config
from pocketbert.embedding_config import EmbeddingConfig, dense_shapes, embedding_config
from pocketbert.errors import raise_if_any
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.heads_config import head_names as head_names
from pocketbert.heads_config import part_problems, parts_of, weight_problems
from pocketbert.label_names import label_problems, shown
from pocketbert.tokenizer_config import TokenizerConfig as TokenizerConfig

Activation = Literal["gelu", "gelu_tanh", "relu"]
Norm = Literal["layer_norm", "no_norm", "identity"]
Pooler = Literal["tanh", "first_token", "none"]
EmbeddingProjection = Literal["none", "word", "factors", "output"]
QueryKeySource = Literal["shared", "raw", "bottleneck"]
ModelType = Literal["bert", "roberta", "xlm-roberta", "mobilebert", "distilbert"]
TokenizerKind = Literal["wordpiece", "byte_bpe", "unigram"]
ScoreActivation = Literal["identity", "sigmoid"]
TaskKind: TypeAlias = str  # A key of `TASK_RULES`.
# A head's weights: path in the head → shape.
HeadShapes: TypeAlias = "Callable[[EncoderConfig, TaskConfig], Mapping[str, tuple[int, ...]]]"
# BERT's pretraining tasks, in the order of their logits.
PRETRAINING_HEADS: tuple[TaskKind, ...] = ("masked_lm", "next_sentence")

# Far above all published encoders, and far below sizes that hang or exhaust a machine.
_MOST_SIZE = 1 << 20
_MOST = {
    "vocab_size": 1 << 24,
    "num_layers": 1024,
    "num_feedforward_networks": 64,
    **dict.fromkeys(("layer_norm_eps", "embedding_layer_norm_eps", "initializer_range"), 1),
}
_MOST_WEIGHTS = 1 << 34


@dataclass(frozen=True, kw_only=True)
class BottleneckConfig:
    """The linear maps around a MobileBERT or IB-BERT block (MobileBERT, section 3.1).

    Attributes:
      size: width inside the block (h_intra): 128 for MobileBERT, 1024 for IB-BERT.
      query_key: input to query and key. `raw`: the block's input, as in the paper. `shared`: a second bottleneck, as in
        the released weights. `bottleneck`: the first bottleneck, which then also feeds the values (TINY).
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
      norm: `layer_norm`, `no_norm` (MobileBERT, eq. 1) or `identity` (from export's graph optimization).
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
      pooler: `pooled_output`: `tanh` (a linear and a tanh layer on the first token), `first_token` or `none`.
      hidden_dropout: dropout rate after the embedding and each sub-layer.
      attention_dropout: dropout rate on the attention probabilities.
      initializer_range: standard deviation of initial weights.
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
    feedforward: FeedForwardConfig | None = None

    def __post_init__(self) -> None:
        problems = []
        positive = (
            "vocab_size hidden_size num_layers num_attention_heads head_size intermediate_size "
            "num_feedforward_networks embedding_size max_position_embeddings layer_norm_eps embedding_layer_norm_eps "
            "initializer_range"
        )
        for name in positive.split():
            most = _MOST.get(name, _MOST_SIZE)
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
        choices = {"model_type": ModelType, "activation": Activation, "norm": Norm, "pooler": Pooler}
        for name, accepted in {**choices, "embedding_projection": EmbeddingProjection}.items():
            problems += _one_of(name, getattr(self, name), accepted)
        if self.embedding_projection == "none" and self.embedding_size != self.hidden_size:
            problems.append(
                f"embedding_size={self.embedding_size} differs from hidden_size={self.hidden_size}, which needs "
                "embedding_projection='word', 'factors' or 'output'"
            )
        if self.trigram and self.embedding_projection != "word":
            problems.append(f"trigram needs embedding_projection='word'; received {self.embedding_projection!r}")
        if self.feedforward is not None and not problems:
            problems += self.feedforward.problems(self)
        raise_if_any(problems, "EncoderConfig")

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
    def sentence_activation(self) -> Literal["tanh", "relu"]:
        """Activation between a sentence head's two linear maps on an encoder without a pooler."""
        return "relu" if self.model_type == "distilbert" else "tanh"

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
        attention = 4 * self.block_size * self.attention_size
        return tables + self.num_layers * (
            attention + 2 * self.num_feedforward_networks * self.block_size * self.intermediate_size
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderConfig:
        """Inverts `dataclasses.asdict`."""
        bottleneck, feedforward = values["bottleneck"], values.get("feedforward")
        return cls(
            **{
                **values,
                "bottleneck": BottleneckConfig(**bottleneck) if bottleneck else None,
                "feedforward": FeedForwardConfig(**feedforward) if feedforward else None,
            }
        )

    def replace(self, **changes: object) -> EncoderConfig:
        """Returns a validated copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class TaskRules:
    """A row in `TASK_RULES`: a task kind's rules for its configuration, and its names in model directories.

    Attributes:
      min_labels: minimum number of labels; 0 for a kind without labels.
      has_null_threshold: whether `TaskConfig.null_threshold` may be set.
      has_embedding: whether the task has a `TaskConfig.embedding`.
      head: layout of the head's weights: `linear` (one map, `output`), `sentence` or `masked_lm` (as in transformers'
        classes), `parts` (the heads in `TaskConfig.tasks`), or a function that returns shapes by path, for heads under
        their own paths; None to derive it.
      tensor: stored name of the linear map; for `sentence`, its name beside another sentence head.
      num_outputs: outputs of the map; None for one per label.
      architecture: transformers' class for such a head, without the family's prefix; empty for none.
      problem_type: `problem_type` in config.json, for kinds that share a class.
      reads: content of example files: a `table`, a table of `pairs`, texts with labelled `spans`, `questions`, or a
        table with a column for each head (`heads`); empty for texts without labels.
      label_form: labels in a table: one class, any number of labels, or a score.
    """

    min_labels: int = 0
    has_null_threshold: bool = False
    has_embedding: bool = False
    head: Literal["linear", "sentence", "masked_lm", "parts"] | HeadShapes | None = None
    tensor: str = ""
    num_outputs: int | None = None
    architecture: str = ""
    problem_type: str = ""
    reads: Literal["", "table", "pairs", "spans", "questions", "heads"] = "table"
    label_form: Literal["classification", "multi_label", "regression"] = "classification"


_SENTENCE = TaskRules(head="sentence", architecture="ForSequenceClassification")
# The built-in kinds, in the order of messages. Each has a file of its name in `pocketbert.tasks`.
TASK_RULES: dict[TaskKind, TaskRules] = {
    "classification": dataclasses.replace(
        _SENTENCE, min_labels=2, tensor="classifier", problem_type="single_label_classification"
    ),
    "multi_label": dataclasses.replace(
        _SENTENCE,
        min_labels=1,
        tensor="label_classifier",
        problem_type="multi_label_classification",
        label_form="multi_label",
    ),
    "regression": dataclasses.replace(
        _SENTENCE, num_outputs=1, tensor="regressor", problem_type="regression", label_form="regression"
    ),
    "span": TaskRules(
        has_null_threshold=True,
        head="linear",
        tensor="qa_outputs",
        num_outputs=2,
        architecture="ForQuestionAnswering",
        reads="questions",
    ),
    "token_classification": TaskRules(
        min_labels=2, head="linear", tensor="classifier", architecture="ForTokenClassification", reads="spans"
    ),
    "embedding": TaskRules(head=dense_shapes, has_embedding=True, reads="pairs"),
    "several": TaskRules(head="parts", reads="heads"),
    "masked_lm": TaskRules(head="masked_lm", architecture="ForMaskedLM", reads=""),
    "next_sentence": TaskRules(
        head="linear",
        tensor="cls.seq_relationship",
        num_outputs=2,
        architecture="ForNextSentencePrediction",
        reads="",
    ),
}
# An option: the kind of a file's labels. A file of questions tells its own, and several heads have a kind each.
FileKind = Annotated[
    str, lambda: [kind for kind, row in TASK_RULES.items() if row.reads not in ("", "questions", "heads")]
]


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """A head on an encoder and the meaning of its outputs.

    Attributes:
      kind: a key of `TASK_RULES`.
      name: the task's name, for example `sst2`, or empty. Several heads of one kind need different names.
      labels: class or label names in the logits' order; empty for kinds without labels. A list becomes a tuple. Each
        label is one line; labels must differ in more than case or white space.
      dropout: dropout rate in front of the head.
      pooling: for sentence heads: `mean` reads the tokens' mean, scaled to length 10; None reads the first
        token, through a tanh layer where the family has one.
      pairs: for sentence heads: `separate` reads a pair's two texts one by one, and the head reads their vectors u and
        v as [u, v, |u − v|, u·v]; None reads both texts together.
      null_threshold: for spans: the answer is empty if [CLS], as start and end, scores higher than the best answer by
        more than this; None to answer every question.
      embedding: for embeddings: pooling, dense layer and prompts; or an object with these fields.
      activation: for regression: `sigmoid` gives scores from 0 to 1, as sentence-transformers' rerankers do; None, or a
        reranker's `identity`, gives the logit.
      decisions: for classes and labels: answer thresholds, or an object with their fields; None for the defaults.
      tasks: for `several`: its heads' tasks, with different names of letters and digits, or objects with their fields.
      weight: for a head in `several`: weight of its loss in the sum; None for 1.
    """

    kind: TaskKind
    name: str = ""
    labels: tuple[str, ...] = ()
    dropout: float = 0.1
    pooling: Literal["mean"] | None = None
    pairs: Literal["separate"] | None = None
    null_threshold: float | None = None
    embedding: EmbeddingConfig | None = None
    activation: ScoreActivation | None = None
    decisions: DecisionConfig | None = None
    tasks: tuple[TaskConfig, ...] | None = None
    weight: float | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in TASK_RULES:
            problems.append(f"kind must be one of {', '.join(TASK_RULES)}; received {self.kind!r}")
        rules = TASK_RULES.get(self.kind, TaskRules())
        if isinstance(self.labels, str):
            problems.append(f"labels must be a list of texts; received {self.labels!r}")
        else:
            object.__setattr__(self, "labels", tuple(self.labels))
            problems += label_problems(self.labels)
        if rules.min_labels > len(self.labels):
            least = "two labels" if rules.min_labels == 2 else "one label"
            problems.append(f"{self.kind} needs at least {least}; received {shown(self.labels) or 'none'}")
        elif self.labels and not rules.min_labels:
            labelled = " and ".join(kind for kind, other_rules in TASK_RULES.items() if other_rules.min_labels)
            problems.append(f"only {labelled} have labels; received {self.labels} with kind={self.kind!r}")
        if not 0 <= self.dropout < 1:
            problems.append(f"dropout must lie in [0, 1); received {self.dropout}")
        for name, choice, default in (("pooling", "mean", "the first token"), ("pairs", "separate", "one row")):
            value = getattr(self, name)
            if value not in (None, choice):
                problems.append(f"{name} must be {choice}, or None for {default}; received {value!r}")
            elif value is not None and rules.head != "sentence":
                sentences = " and ".join(kind for kind, row in TASK_RULES.items() if row.head == "sentence")
                problems.append(f"{name} is for {sentences}; received {value!r} for {self.kind!r}")
        if self.null_threshold is not None and not rules.has_null_threshold:
            thresholded = " and ".join(kind for kind, row in TASK_RULES.items() if row.has_null_threshold)
            problems.append(f"null_threshold is for {thresholded}; received {self.null_threshold} for {self.kind!r}")
        if rules.has_embedding:
            object.__setattr__(self, "embedding", embedding_config(self.embedding))
        elif self.embedding is not None:
            problems.append(f"embedding is for sentence embeddings; received it for {self.kind!r}")
        if self.activation is not None:
            problems += _one_of("activation", self.activation, ScoreActivation)
            if rules.num_outputs != 1:
                problems.append(f"activation is for regression; received {self.activation!r} for {self.kind!r}")
        object.__setattr__(self, "decisions", decision_config(self.decisions))
        if self.decisions is not None:
            problems += self.decisions.problems(self.kind, rules.label_form, self.labels, rules.head == "sentence")
        if rules.head == "parts":
            object.__setattr__(self, "tasks", parts_of(self.tasks, TaskConfig))
            problems += part_problems(self.tasks or (), TASK_RULES)
        elif self.tasks is not None:
            problems.append(f"tasks is for several heads; received it for {self.kind!r}")
        problems += weight_problems(self.weight)
        raise_if_any(problems, "TaskConfig")

    @property
    def rules(self) -> TaskRules:
        """The row for the task's kind."""
        return TASK_RULES[self.kind]


def _one_of(name: str, value: object, choices: object) -> list[str]:
    accepted = get_args(choices)
    return [] if value in accepted else [f"{name} must be one of {', '.join(accepted)}; received {value!r}"]
