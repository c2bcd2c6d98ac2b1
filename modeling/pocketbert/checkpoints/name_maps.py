"""Computes tensor names and shapes in a model directory from the configuration.

The names are those in transformers' PyTorch classes such as `BertForSequenceClassification`. They store a linear map as
[out, in], while the canonical weight is [in, out]. Weights without a name in transformers take their nearest
relative's: an embedding projection is MobileBERT's `embedding_transformation` in all families.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pocketbert.checkpoints.families.family import Family
from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import TASK_RULES, EncoderConfig, TaskConfig, head_names


@dataclass(frozen=True)
class TensorSpec:
    """A tensor in a model directory.

    Attributes:
      name: name in the file.
      shape: stored shape.
      transpose: whether the canonical weight is the transpose.
      first_row: first of its rows in the stored tensor.
      stored_rows: number of rows in the stored tensor, which holds other weights, too; None for one weight alone.
    """

    name: str
    shape: tuple[int, ...]
    transpose: bool = False
    first_row: int = 0
    stored_rows: int | None = None

    @property
    def weight_name(self) -> str:
        """The weight's name: that of its tensor, with its rows if it is a part, such as `….Wqkv.weight.0-767`."""
        last_row = self.first_row + self.shape[0] - 1
        return self.name if self.stored_rows is None else f"{self.name}.{self.first_row}-{last_row}"

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the tensor in the file."""
        return self.shape if self.stored_rows is None else (self.stored_rows, *self.shape[1:])

    @property
    def canonical_shape(self) -> tuple[int, ...]:
        """The weight's shape in the model."""
        return self.shape[::-1] if self.transpose else self.shape


def tensor_specs(config: EncoderConfig, tasks: Sequence[TaskConfig] = ()) -> dict[str, TensorSpec]:
    """Maps canonical paths to tensors for all weights in the encoder and its heads, in forward pass order.

    Tied weights have one entry. If several heads have one kind, transformers has no class for them, and their names
    have the prefix `heads.NAME.`.
    """
    kinds = {task.kind for task in tasks}
    sentence_kinds = [kind for kind, rules in TASK_RULES.items() if kind in kinds and rules.head == "sentence"]
    family = family_of(config.model_type)
    specs = dict(_named(family, _encoder(config, family, has_sentence_head=bool(sentence_kinds))))
    for task, head in zip(tasks, head_names(tasks), strict=True):
        # transformers calls every sentence head `classifier`; further kinds on one encoder need names of their own.
        for path, spec in _named(family, _head(config, family, task, has_own_name=task.kind in sentence_kinds[1:])):
            if head != task.kind:
                path = path.replace(f"heads.{task.kind}.", f"heads.{head}.")
            # transformers calls the heads for sentences and for tokens `classifier`.
            if head != task.kind or any(spec.name == other.name for other in specs.values()):
                spec = dataclasses.replace(spec, name=f"heads.{head}.{spec.name}")
            specs[path] = spec
    return specs


def parameter_count(config: EncoderConfig, tasks: Sequence[TaskConfig] = ()) -> int:
    """Counts the weights in the encoder and its heads, including a pooler."""
    return sum(math.prod(spec.shape) for spec in tensor_specs(config, tasks).values())


def has_head(config: EncoderConfig, task: TaskConfig, tensor_names: Collection[str]) -> bool:
    """Whether a head's first tensor of its own is in a model directory."""
    specs = [spec for path, spec in tensor_specs(config, [task]).items() if path.startswith("heads.")]
    # Heads of any kind begin with the same prediction layers.
    own = specs[-1] if family_of(config.model_type).has_prediction_layers else specs[0]
    return own.name in tensor_names


def modern_name(name: str) -> str:
    """Returns the current name for a tensor from an old transformers version (`LayerNorm.gamma`)."""
    return re.sub(r"LayerNorm\.(gamma|beta)$", lambda match: f"LayerNorm.{_OLD_NAMES[match[1]]}", name)


_OLD_NAMES = {"gamma": "weight", "beta": "bias"}
_Specs = Iterator[tuple[str, TensorSpec]]


def _named(family: Family, specs: _Specs) -> _Specs:
    """Gives tensors with BERT's names those of a family."""
    for path, spec in specs:
        yield path, dataclasses.replace(spec, name=family.tensor_name(spec.name))


def _encoder(config: EncoderConfig, family: Family, *, has_sentence_head: bool) -> _Specs:
    hidden, block, attention = config.hidden_size, config.block_size, config.attention_size
    early_width = hidden if config.projects_words else config.embedding_size

    stored = "bert.embeddings"
    yield _table("encoder.embeddings.word", f"{stored}.word_embeddings", config.vocab_size, config.embedding_size)
    if config.has_position_table:
        rows = config.num_position_rows
        yield _table("encoder.embeddings.position", f"{stored}.position_embeddings", rows, early_width)
    if config.type_vocab_size:
        yield _table(
            "encoder.embeddings.token_type", f"{stored}.token_type_embeddings", config.type_vocab_size, early_width
        )
    if config.embedding_projection != "none":
        inputs = config.embedding_size * (3 if config.trigram else 1)
        kernel, bias = _linear("encoder.embeddings.projection", f"{stored}.embedding_transformation", inputs, hidden)
        yield from (kernel,) if config.embedding_projection == "factors" else (kernel, bias)
    yield from _norm(config, "encoder.embeddings.norm", f"{stored}.LayerNorm", early_width)

    if config.rotary is not None:
        for index in range(config.num_layers):
            yield from _rotary_layer(config, index)
        yield "encoder.final_norm.gamma", TensorSpec("bert.final_norm.weight", (hidden,))
        return
    if config.relative:
        yield _table("encoder.relative.embedding", "bert.encoder.rel_embeddings", 2 * config.relative.buckets, hidden)
        yield from _norm(config, "encoder.relative.norm", "bert.encoder.LayerNorm", hidden)

    for index in range(config.num_stored_layers):
        path, stored = f"encoder.layers.{index}", f"bert.encoder.layer.{index}"
        query_key_width = value_width = hidden
        if config.bottleneck:
            yield from _linear(f"{path}.bottleneck.input", f"{stored}.bottleneck.input.dense", hidden, block)
            yield from _norm(config, f"{path}.bottleneck.input_norm", f"{stored}.bottleneck.input.LayerNorm", block)
            if config.bottleneck.query_key == "shared":
                yield from _linear(
                    f"{path}.bottleneck.query_key", f"{stored}.bottleneck.attention.dense", hidden, block
                )
                yield from _norm(
                    config, f"{path}.bottleneck.query_key_norm", f"{stored}.bottleneck.attention.LayerNorm", block
                )
            query_key_width = hidden if config.bottleneck.query_key == "raw" else block
            value_width = block if config.bottleneck.query_key == "bottleneck" else hidden

        attention_name = f"{stored}.attention.self"
        yield from _linear(f"{path}.attention.query", f"{attention_name}.query", query_key_width, attention)
        yield from _linear(f"{path}.attention.key", f"{attention_name}.key", query_key_width, attention)
        yield from _linear(f"{path}.attention.value", f"{attention_name}.value", value_width, attention)
        yield from _linear(f"{path}.attention.output", f"{stored}.attention.output.dense", attention, block)
        yield from _norm(config, f"{path}.attention.norm", f"{stored}.attention.output.LayerNorm", block)

        stacked, inner_size = config.feedforward_networks(index)
        for number in range(stacked):
            # transformers keeps the last stacked network outside its list, like BERT's only one.
            last = number == stacked - 1
            inner_path, inner = f"{path}.feed_forwards.{number}", stored if last else f"{stored}.ffn.{number}"
            yield from _linear(f"{inner_path}.intermediate", f"{inner}.intermediate.dense", block, inner_size)
            yield from _linear(f"{inner_path}.output", f"{inner}.output.dense", inner_size, block)
            yield from _norm(config, f"{inner_path}.norm", f"{inner}.output.LayerNorm", block)

        if config.bottleneck:
            yield from _linear(f"{path}.bottleneck.output", f"{stored}.output.bottleneck.dense", block, hidden)
            yield from _norm(config, f"{path}.bottleneck.output_norm", f"{stored}.output.bottleneck.LayerNorm", hidden)

    if config.pooler == "tanh":
        stored = family.sentence_dense if family.pooler_in_head and has_sentence_head else "bert.pooler.dense"
        yield from _linear("encoder.pooler", stored, hidden, hidden)


def _rotary_layer(config: EncoderConfig, index: int) -> _Specs:
    """ModernBERT's layer: several maps in one tensor, and no biases."""
    path, stored = f"encoder.layers.{index}", f"bert.encoder.layer.{index}"
    hidden, attention, inner = config.hidden_size, config.attention_size, config.intermediate_size
    has_norms = config.norm == "layer_norm"
    if index and has_norms:
        yield f"{path}.attention.norm.gamma", TensorSpec(f"{stored}.attn_norm.weight", (hidden,))
    yield from _stacked(f"{path}.attention", ("query", "key", "value"), f"{stored}.attn.Wqkv", hidden, attention)
    yield f"{path}.attention.output.kernel", TensorSpec(f"{stored}.attn.Wo.weight", (hidden, attention), transpose=True)
    path = f"{path}.feed_forwards.0"
    if has_norms:
        yield f"{path}.norm.gamma", TensorSpec(f"{stored}.mlp_norm.weight", (hidden,))
    yield from _stacked(path, ("intermediate", "gate"), f"{stored}.mlp.Wi", hidden, inner)
    yield f"{path}.output.kernel", TensorSpec(f"{stored}.mlp.Wo.weight", (hidden, inner), transpose=True)


def _stacked(path: str, maps: Sequence[str], stored: str, inputs: int, outputs: int) -> _Specs:
    """Linear maps without biases in one tensor, one below the other."""
    for position, name in enumerate(maps):
        spec = TensorSpec(f"{stored}.weight", (outputs, inputs), True, position * outputs, len(maps) * outputs)
        yield f"{path}.{name}.kernel", spec


def _head(config: EncoderConfig, family: Family, task: TaskConfig, *, has_own_name: bool) -> _Specs:
    """A head's tensors, in the layout from its row in `TASK_RULES`."""
    path, rules = f"heads.{task.kind}", task.rules
    if rules.head == "linear":
        if family.has_prediction_layers:
            yield from _prediction_layers(config, f"{path}.dense", f"{path}.norm", "head")
        yield from _linear(f"{path}.output", rules.tensor, config.hidden_size, _num_outputs(task))
    elif rules.head == "sentence":
        yield from _sentence_head(config, family, task, has_own_name=has_own_name)
    elif rules.head == "masked_lm":
        yield from _masked_lm_head(config, family, path)
    elif rules.head == "parts":
        for part in task.tasks or ():
            # No class in transformers has these heads, so all weights have their own paths, even those of a known part.
            for part_path, spec in _head(config, family, part, has_own_name=False):
                stored = part_path.replace(f"heads.{part.kind}.", f"{path}.parts.{part.name}.", 1)
                yield stored, TensorSpec(stored, spec.canonical_shape)
    elif rules.head is not None:
        for weight, shape in rules.head(config, task).items():
            yield f"{path}.{weight}", TensorSpec(f"{path}.{weight}", shape)


def _num_outputs(task: TaskConfig) -> int:
    return task.rules.num_outputs or len(task.labels)


def _sentence_head(config: EncoderConfig, family: Family, task: TaskConfig, *, has_own_name: bool) -> _Specs:
    path, hidden = f"heads.{task.kind}", config.hidden_size
    stored = task.rules.tensor if has_own_name else "classifier"
    # No class in transformers has these heads, so none may find their weights.
    width, of_pairs = (4 * hidden, "pair_") if task.pairs == "separate" else (hidden, "")
    if family.has_prediction_layers:
        own_name = f"{stored}.head" if has_own_name else "head"
        yield from _prediction_layers(config, f"{path}.dense", f"{path}.norm", own_name)
        yield from _linear(f"{path}.output", of_pairs + stored, width, _num_outputs(task))
        return
    if task.pooling == "mean":
        yield from _linear(f"{path}.output", f"{of_pairs}mean_{stored}", width, _num_outputs(task))
        return
    if config.pooler == "none":
        # The head's tanh layer on the first token, like the pooler in BERT's classifier.
        dense = f"{stored}.dense" if has_own_name else family.sentence_dense
        yield from _linear(f"{path}.dense", dense, hidden, hidden)
    yield from _linear(f"{path}.output", of_pairs + stored + family.sentence_output, width, _num_outputs(task))


def _masked_lm_head(config: EncoderConfig, family: Family, path: str) -> _Specs:
    stored = "cls.predictions"
    if family.has_prediction_layers:
        yield from _prediction_layers(config, f"{path}.transform", f"{path}.norm", "head")
        yield f"{path}.bias", TensorSpec(f"{stored}.bias", (config.vocab_size,))
        return
    # The word table, joined by `extra_table` for trigram inputs, makes the logits and must have this width.
    width = config.hidden_size if config.trigram else config.embedding_size
    yield from _linear(f"{path}.transform", f"{stored}.transform.dense", config.hidden_size, width)
    # A layer norm in every family; MobileBERT's head has it even if the encoder has NoNorm.
    yield f"{path}.norm.gamma", TensorSpec(f"{stored}.transform.LayerNorm.weight", (width,))
    yield f"{path}.norm.beta", TensorSpec(f"{stored}.transform.LayerNorm.bias", (width,))
    yield f"{path}.bias", TensorSpec(f"{stored}.bias", (config.vocab_size,))
    if extra := width - config.embedding_size:
        # Stored transposed, although it is no linear map: transformers multiplies by it from the other side.
        yield f"{path}.extra_table", TensorSpec(f"{stored}.dense.weight", (extra, config.vocab_size), transpose=True)


def _prediction_layers(config: EncoderConfig, dense: str, norm: str, stored: str) -> _Specs:
    hidden = config.hidden_size
    yield f"{dense}.kernel", TensorSpec(f"{stored}.dense.weight", (hidden, hidden), transpose=True)
    yield f"{norm}.gamma", TensorSpec(f"{stored}.norm.weight", (hidden,))


def _table(path: str, stored: str, rows: int, width: int) -> tuple[str, TensorSpec]:
    return f"{path}.table", TensorSpec(f"{stored}.weight", (rows, width))


def _linear(path: str, stored: str, inputs: int, outputs: int) -> _Specs:
    yield f"{path}.kernel", TensorSpec(f"{stored}.weight", (outputs, inputs), transpose=True)
    yield f"{path}.bias", TensorSpec(f"{stored}.bias", (outputs,))


def _norm(config: EncoderConfig, path: str, stored: str, width: int) -> _Specs:
    if config.norm != "identity":
        yield f"{path}.gamma", TensorSpec(f"{stored}.weight", (width,))
        if config.rotary is None:
            yield f"{path}.beta", TensorSpec(f"{stored}.bias", (width,))
