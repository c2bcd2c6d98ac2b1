"""The encoder for all model families."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.layers.attention import ATTENTION_FEATURES, mask_bias
from pocketbert.layers.block import Block
from pocketbert.layers.checks import require
from pocketbert.layers.core import Dense, LayerNorm, RootMeanSquareNorm, initialize_weights
from pocketbert.layers.embeddings import Embeddings
from pocketbert.layers.graph_form import GraphForm
from pocketbert.layers.recomputation import recomputed
from pocketbert.layers.relative_attention import RelativeEmbeddings
from pocketbert.layers.rotary_block import RotaryBlock
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES as INPUT_NAMES

# Names (all layers), or name → layers, counted from 1; layer 0 is the embedding output.
FeatureRequest = Sequence[str] | Mapping[str, Sequence[int]]
Inputs = Mapping[str, tf.Tensor]

ENCODER_FEATURES = ("hidden_states", *ATTENTION_FEATURES)


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class Encoder(tf_keras.Model):
    """An encoder from any family; the configuration selects its embedding, blocks and pooler.

    Shapes: B batch, S length, H hidden_size, N heads, A width of all heads.
    Inputs are integers [B, S] by name, as in tf-models-official: `input_word_ids`, `input_mask` (1 = token; bool and
    float masks are cast) and `input_type_ids`. The last two are optional: the defaults are no padding and one segment.

    Args:
      config: architecture.
      graph: the graph's layout; only export changes it.
      seed: seed for the initial weights.
      initialize: draw initial weights; False leaves zeros, to save time before you load weights.
    Attributes:
      recomputes: whether training computes each layer again in the backward pass; see `recomputed`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        graph: GraphForm = GraphForm(),  # noqa: B008
        seed: int = 0,
        initialize: bool = True,
    ) -> None:
        super().__init__()
        self.config = config
        self._graph, self._seed = graph, seed
        self.recomputes = False
        self.embeddings = Embeddings(config)
        if config.relative:
            self.relative = RelativeEmbeddings(config)
        # Layers that share their weights are one block, which runs several times.
        self.layers_ = [self._make_block(index) for index in range(config.num_stored_layers)]
        if config.rotary is not None:
            size, epsilon = config.hidden_size, config.layer_norm_eps
            centred = config.norm == "rms"
            self.final_norm = (
                RootMeanSquareNorm(size, epsilon, gamma=True) if centred else LayerNorm(size, epsilon, beta=False)
            )
        if config.pooler == "tanh":
            self.pooler = Dense(config.hidden_size, config.hidden_size)
        if not initialize:
            return
        initialize_weights(self, config.initializer_range, seed)
        # The padding row starts at zero, as with torch's padding_idx.
        padding_row = tf.IndexedSlices(tf.zeros([1, config.embedding_size]), tf.constant([config.pad_token_id]))
        self.embeddings.word.table.scatter_update(padding_row)

    def _make_block(self, index: int) -> Any:
        config, graph = self.config, self._graph
        is_last = index == config.num_stored_layers - 1
        first_token_only = graph.first_token_only and is_last
        if config.block == "rotary":
            return RotaryBlock(
                config,
                index,
                fused=graph.fused_projections,
                first_token_only=first_token_only,
                padding_bias=graph.padding_bias,
                in_blocks=graph.in_blocks,
            )
        return Block(
            config,
            index,
            fused=graph.fused_projections,
            first_token_only=first_token_only,
            attend_to_inputs=graph.attend_to_inputs and is_last,
            early_gamma=graph.early_gamma,
            in_blocks=graph.in_blocks,
            scaled_residuals=[
                path.removeprefix(f"layers.{index}.")
                for path in graph.scaled_residuals
                if path.startswith(f"layers.{index}.")
            ],
        )

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Inputs, training: bool | None = None) -> dict[str, tf.Tensor]:
        """Encodes a batch.

        Args:
          inputs: int32 [B, S] by name.
          training: whether dropout is active.
        Returns:
          `sequence_output` [B, S, H] ([B, 1, H] with `GraphForm.first_token_only`) and, unless the pooler is `none`,
          `pooled_output` [B, H].
        """
        top = self.config.num_layers
        sequence_output = self.features(inputs, {"hidden_states": (top,)}, training=training)["hidden_states"][0]
        return self.pooled(sequence_output)

    @tf.autograph.experimental.do_not_convert
    def at_positions(self, inputs: Inputs, positions: tf.Tensor) -> tf.Tensor:
        """Returns `sequence_output` at some positions, [B, P, H]; computes the last layer only there, without dropout.

        Args:
          inputs: int32 [B, S] by name.
          positions: int32 [B, P].
        """
        inputs = complete_inputs(inputs)
        below = self.features(inputs, {"hidden_states": (self.config.num_layers - 1,)})["hidden_states"][0]
        bias, options = self._mask_bias(inputs, below.dtype), self._block_options()
        return self._normalized(self.layers_[-1](below, bias, positions=positions, **options)[0])

    def get_config(self) -> dict[str, Any]:
        """Keras' hook: the constructor's arguments as JSON values."""
        return {
            "config": dataclasses.asdict(self.config),
            "graph": dataclasses.asdict(self._graph),
            "seed": self._seed,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Encoder:
        """Keras' hook: makes a new instance from `get_config`'s result."""
        return cls(EncoderConfig.from_dict(config["config"]), GraphForm(**config["graph"]), config["seed"])

    def _check_length(self, ids: tf.Tensor) -> list[tf.Operation]:
        longest = self.config.max_position_embeddings
        rule = f"inputs must have at most {longest} tokens (max_position_embeddings), so truncate them"
        if ids.shape[1] is None:
            return require(tf.shape(ids)[1] <= longest, rule, tf.shape(ids)[1])
        if ids.shape[1] > longest:
            raise UserError(f"{rule}; received {ids.shape[1]}")
        return []

    def _mask_bias(self, inputs: Inputs, dtype: tf.DType) -> tf.Tensor:
        return mask_bias(inputs["input_mask"], dtype, self._graph.padding_bias)

    def _block_options(self) -> dict[str, Any]:
        """Arguments of all blocks in a forward pass."""
        return {"relative": self.relative.vectors()} if self.config.relative else {}

    def _normalized(self, x: tf.Tensor) -> tf.Tensor:
        return x if self.config.rotary is None else self.final_norm(x)

    def pooled(self, sequence_output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the encoder's outputs from the last feature map [B, S, H].

        ModernBERT's final norm is no part of this feature map, as in transformers.
        """
        sequence_output = self._normalized(sequence_output)
        outputs = {"sequence_output": sequence_output}
        if self.config.pooler == "first_token":
            outputs["pooled_output"] = sequence_output[:, 0]
        elif self.config.pooler == "tanh":
            outputs["pooled_output"] = tf.tanh(self.pooler(sequence_output[:, 0]))
        return outputs

    def embedded(self, inputs: Inputs, training: bool | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the embedding output [B, S, H], and the bias for attention logits [B, 1, 1, S]."""
        inputs = complete_inputs(inputs)
        with tf.control_dependencies(self._check_length(inputs["input_word_ids"])):
            x = self.embeddings(inputs, training=training)
        return x, self._mask_bias(inputs, x.dtype)

    @tf.autograph.experimental.do_not_convert
    def features(
        self, inputs: Inputs, request: FeatureRequest, training: bool | None = None
    ) -> dict[str, list[tf.Tensor]]:
        """Computes the requested features, and no layer above them.

        Args:
          inputs: int32 [B, S] by name.
          request: names (all layers), or name → layers, counted from 1. Layer 0 of `hidden_states` is the embedding.
            ModernBERT's are the sums before the next norm, the last one before the final norm, and its queries and keys
            have no positions yet.
          training: whether dropout is active.
        Returns:
          Name → one tensor per layer, in the requested order: `hidden_states` [B, S, H]; `attention_logits` (scaled dot
          products before mask and softmax) and `attention_probs` (before dropout) [B, N, S, S]; `queries`, `keys`,
          `values` [B, S, A], heads concatenated.
        Raises:
          UserError: an unknown name, a layer that the encoder does not have, or inputs that are too long.
        """
        layers_by_name = resolve_request(request, self.config.num_layers)
        x, bias = self.embedded(inputs, training)
        shared = self._block_options() if layers_by_name.highest else {}
        found: dict[tuple[str, int], tf.Tensor] = {("hidden_states", 0): x}
        for layer in range(1, layers_by_name.highest + 1):
            names = [name for name in ATTENTION_FEATURES if layer in layers_by_name.layers.get(name, ())]
            attention_only = layer > layers_by_name.highest_hidden
            block = self.layers_[self.config.stored_layer(layer - 1)]
            options = {"wanted": names, "is_last": layer == self.config.num_layers, **shared}
            if self.recomputes and training and not attention_only:
                x, features = recomputed(block, x, bias, **options)
            else:
                x, features = block(x, bias, attention_only=attention_only, training=training, **options)
            found[("hidden_states", layer)] = x
            found.update({(name, layer): value for name, value in features.items()})
        return {name: [found[(name, layer)] for layer in layers] for name, layers in layers_by_name.layers.items()}


@dataclass(frozen=True)
class ResolvedRequest:
    """A `FeatureRequest` with explicit layers.

    Attributes:
      layers: name → layers.
      highest: highest requested layer.
      highest_hidden: highest layer with a requested feature map, or one needed by a higher layer.
    """

    layers: dict[str, tuple[int, ...]]
    highest: int
    highest_hidden: int


def resolve_request(request: FeatureRequest, num_layers: int) -> ResolvedRequest:
    """Fills in a request's layers; raises a `UserError` that lists unknown names, and layers above `num_layers`."""
    problems = []
    layers: dict[str, tuple[int, ...]] = {}
    for name in request:
        if name not in ENCODER_FEATURES:
            problems.append(f"unknown feature {name!r}, there are {', '.join(ENCODER_FEATURES)}")
            continue
        lowest = 0 if name == "hidden_states" else 1
        requested = tuple(request[name]) if isinstance(request, Mapping) else tuple(range(lowest, num_layers + 1))
        outside = [layer for layer in requested if not lowest <= layer <= num_layers]
        if outside:
            problems.append(f"{name} has layers {lowest} to {num_layers}, received {outside}")
        layers[name] = requested
    if problems:
        raise UserError("features: " + "; ".join(problems))
    highest_hidden = max(layers.get("hidden_states", ()), default=0)
    highest = max((layer for requested in layers.values() for layer in requested), default=0)
    return ResolvedRequest(layers, highest, max(highest_hidden, highest - 1))


def complete_inputs(inputs: Inputs) -> dict[str, tf.Tensor]:
    """Casts all inputs to int32 [B, S] and adds missing ones: a mask of ones, segments of zeros.

    Args:
      inputs: arrays or tensors by name. A mask can be int, bool, or float with values 0 and 1. Other entries are kept.
    Raises:
      UserError: `inputs` is not a mapping or lacks `input_word_ids`, ids are not integers, or a float mask has other
        values.
    """
    if not isinstance(inputs, Mapping):
        raise UserError(
            f"inputs must be a mapping with input_word_ids; received {type(inputs).__name__}; if it is a pair of "
            "(inputs, labels), pass only the inputs"
        )
    if "input_word_ids" not in inputs:
        raise UserError(f"inputs need input_word_ids; received {sorted(inputs)}")
    ids = _integers("input_word_ids", inputs["input_word_ids"])
    complete = dict(inputs) | {"input_word_ids": ids}
    complete["input_mask"] = _mask(inputs["input_mask"]) if "input_mask" in inputs else tf.ones_like(ids)
    types = inputs.get("input_type_ids")
    complete["input_type_ids"] = tf.zeros_like(ids) if types is None else _integers("input_type_ids", types)
    return complete


def _integers(name: str, value: tf.Tensor) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_integer:
        raise UserError(f"{name} must be integers; received {value.dtype.name}")
    return tf.cast(value, tf.int32)


def _mask(value: tf.Tensor) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_floating:
        return tf.cast(value, tf.int32)
    # In some libraries a mask is added to the attention logits, with values 0 and -10000.
    odd = tf.boolean_mask(value, (value != 0) & (value != 1))
    rule = "a float input_mask must hold 1 for tokens and 0 for padding"
    with tf.control_dependencies(require(tf.size(odd) == 0, rule, tf.reduce_min(odd))):
        return tf.cast(value, tf.int32)
