"""One encoder layer: attention, feed-forward networks and an optional bottleneck around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.feedforward import evaluate
from pocketbert.layers.attention import ATTENTION_VECTORS, Attention
from pocketbert.layers.core import (
    Dense,
    ResidualScale,
    RoundingLayer,
    activate,
    add_residual,
    feedforward_operations,
    make_norm,
    project,
)
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.relative_attention import RelativeAttention


class Block(tf_keras.layers.Layer):
    """BERT's layer, MobileBERT's with a bottleneck and stacked feed-forward networks, or DeBERTa's.

    Shapes: B batch, S length, T output length (S, 1, or that of `positions`), H hidden_size, A width of all heads.

    Args:
      config: encoder's architecture.
      index: number among the stored layers, counted from 0.
      fused: compute linear maps with the same input as one matrix product.
      first_token_only: as the encoder's last layer, compute the output for the first token only (T = 1).
      attend_to_inputs: then attend to the inputs of keys and values (`Attention.attend_to_inputs`); for T = 1.
      early_gamma: see `GraphForm`.
      scaled_residuals: sub-layer names in `GraphForm.scaled_residuals`, without the layer's.
    """

    def __init__(
        self,
        config: EncoderConfig,
        index: int,
        *,
        fused: bool,
        first_token_only: bool,
        attend_to_inputs: bool = False,
        early_gamma: bool = False,
        in_blocks: bool = True,
        scaled_residuals: Collection[str] = (),
    ) -> None:
        super().__init__()
        source = config.bottleneck.query_key if config.bottleneck else "raw"
        query_size = config.hidden_size if source == "raw" else config.block_size
        value_size = config.block_size if source == "bottleneck" else config.hidden_size
        if config.bottleneck:
            self.bottleneck = Bottleneck(config, scale_residual="bottleneck" in scaled_residuals)
        attention = functools.partial(RelativeAttention, in_blocks=in_blocks) if config.relative else Attention
        self.attention = attention(config, query_size, value_size, scale_residual="attention" in scaled_residuals)
        self.feed_forwards = [
            FeedForward(config, index, scale_residual=f"feed_forwards.{number}" in scaled_residuals)
            for number in range(config.feedforward_networks(index)[0])
        ]
        if early_gamma:
            self.feed_forwards[-1].norm.multiply_early()
        self._config = config
        self._fused = fused
        self._first_token_only = first_token_only
        self._attend_to_inputs = attend_to_inputs

    def call(
        self,
        x: tf.Tensor,
        mask_bias: tf.Tensor,
        wanted: Collection[str] = (),
        attention_only: bool = False,
        training: bool | None = None,
        positions: tf.Tensor | None = None,
        feed_forwards: Sequence[Callable[..., tf.Tensor]] | None = None,
        is_last: bool = False,
        relative: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
        """Runs the layer.

        Args:
          x: feature map [B, S, H].
          mask_bias: [B, 1, 1, S], added to the attention logits.
          wanted: attention features to return (`ATTENTION_FEATURES`).
          attention_only: stop after these features, without the output.
          training: whether dropout is active.
          positions: int32 [B, T], compute the output for these tokens only.
          feed_forwards: functions to call instead of `self.feed_forwards`.
          is_last: whether this is the encoder's last layer, which can compute the first token only.
          relative: `RelativeEmbeddings.vectors` [R, H], for DeBERTa's layer.
        Returns:
          The feature map [B, T, H], or None with `attention_only`; and the wanted features.
        """
        # DeBERTa's products are in order for all tokens, so tokens are chosen behind the attention.
        chosen, positions = (positions, None) if self._config.relative else (None, positions)
        rows = self._rows(is_last, positions)
        attends_to_inputs = self._attend_to_inputs and is_last
        residual, queries, keys, values = self._projections(x, rows, attends_to_inputs)
        if attention_only and set(wanted) <= set(ATTENTION_VECTORS):
            vectors = dict(zip(ATTENTION_VECTORS, (queries, keys, values), strict=True))
            return None, {name: vectors[name] for name in wanted}
        options = {"relative": relative} if self._config.relative else {}
        attend = self.attention.attend_to_inputs if attends_to_inputs else self.attention.attend
        context, features = attend(queries, keys, values, mask_bias, wanted, training, **options)
        if attention_only:
            return None, features
        if chosen is not None:
            context, residual = (tf.gather(part, chosen, batch_dims=1) for part in (context, residual))
        inner = self.attention(context, residual, training=training)
        for feed_forward in self.feed_forwards if feed_forwards is None else feed_forwards:
            inner = feed_forward(inner, training=training)
        if self._config.bottleneck:
            inner = self.bottleneck(inner, rows(x), training=training)
        return inner, features

    def compute_first_token_only(self) -> None:
        """Computes the last layer's output for the first token only from now on."""
        self._first_token_only = True

    def _rows(self, is_last: bool, positions: tf.Tensor | None) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function for the rows to compute the output for."""
        if positions is not None:
            return lambda x: tf.gather(x, positions, batch_dims=1)
        return (lambda x: x[:, :1]) if self._first_token_only and is_last else (lambda x: x)

    def _projections(
        self, x: tf.Tensor, read: Callable[[tf.Tensor], tf.Tensor], attends_to_inputs: bool
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Residual [B, T, block_size], queries [B, T, A], keys and values [B, S, A] or their inputs."""
        attention, fused, rows = self.attention, self._fused, read(x)
        key, value = (None, None) if attends_to_inputs else (attention.key, attention.value)
        if self._config.bottleneck is None:
            q, k, v = project([(rows, attention.query), (x, key), (x, value)], fused=fused)
            return rows, q, k, v
        bottleneck = self.bottleneck
        source = self._config.bottleneck.query_key
        if source == "raw":
            pairs = [
                (rows, bottleneck.input_projection),
                (rows, attention.query),
                (x, key),
                (x, value),
            ]
            inner, q, k, v = project(pairs, fused=fused)
            return bottleneck.input_norm(inner), q, k, v
        if source == "shared":
            pairs = [(rows, bottleneck.input_projection), (x, bottleneck.query_key), (x, value)]
            inner, shared, v = project(pairs, fused=fused)
            shared = bottleneck.query_key_norm(shared)
            q, k = project([(read(shared), attention.query), (shared, key)], fused=fused)
            return bottleneck.input_norm(inner), q, k, v
        inner = bottleneck.input_norm(bottleneck.input_projection(x))
        inner_rows = read(inner)
        pairs = [(inner_rows, attention.query), (inner, key), (inner, value)]
        q, k, v = project(pairs, fused=fused)
        return inner_rows, q, k, v


class FeedForward(RoundingLayer):
    """Two linear maps with an activation between them, or an expression of two linear maps, residual and norm.

    Args:
      config: encoder's architecture.
      index: layer number, counted from 0.
      scale_residual: multiply the residual by a factor per feature.
    """

    def __init__(self, config: EncoderConfig, index: int, *, scale_residual: bool = False) -> None:
        super().__init__()
        _, inner_size = config.feedforward_networks(index)
        self.intermediate = Dense(config.block_size, inner_size)
        self.output_projection = Dense(inner_size, config.block_size)
        self.norm = make_norm(config.norm, config.block_size, config.layer_norm_eps)
        self.residual_scale = ResidualScale(config.block_size) if scale_residual else None
        # The authors apply no dropout to sub-layers inside a bottleneck.
        self.dropout = Dropout(0.0 if config.bottleneck else config.hidden_dropout)
        self._activation, self._tree = config.activation, None
        if config.feedforward:
            self._tree = config.feedforward.expression(index).tree
            self._operations = feedforward_operations(config.feedforward.mismatch)

    def call(
        self,
        x: tf.Tensor,
        training: bool | None = None,
        linears: Sequence[Callable[[tf.Tensor], tf.Tensor]] | None = None,
    ) -> tf.Tensor:
        """Maps [B, S, block_size] to the same shape; `linears` replace the two linear maps."""
        intermediate, output_projection = linears or (self.intermediate, self.output_projection)
        if self._tree is None:
            result = output_projection(activate(intermediate(x), self._activation))
        else:
            result = evaluate(self._tree, x, (intermediate, output_projection), self._operations)
        return self.norm(
            self._rounding.sums(add_residual(self.dropout(result, training=training), x, self.residual_scale))
        )


class Bottleneck(RoundingLayer):
    """Linear maps into and out of a block (MobileBERT, section 3.1).

    The block applies the input maps itself, to fuse them with others.

    Args:
      config: architecture with a bottleneck.
      scale_residual: multiply the residual by a factor per feature.
    """

    def __init__(self, config: EncoderConfig, *, scale_residual: bool = False) -> None:
        super().__init__()
        assert config.bottleneck is not None
        size = config.bottleneck.size
        self.input_projection = Dense(config.hidden_size, size)
        self.input_norm = make_norm(config.norm, size, config.layer_norm_eps)
        if config.bottleneck.query_key == "shared":
            self.query_key = Dense(config.hidden_size, size)
            self.query_key_norm = make_norm(config.norm, size, config.layer_norm_eps)
        self.output_projection = Dense(size, config.hidden_size)
        self.output_norm = make_norm(config.norm, config.hidden_size, config.layer_norm_eps)
        self.residual_scale = ResidualScale(config.hidden_size) if scale_residual else None
        self.dropout = Dropout(config.hidden_dropout)

    def call(self, x: tf.Tensor, residual: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps [B, S, size] to [B, S, hidden_size] and adds the residual [B, S, hidden_size], normalized."""
        result = self.dropout(self.output_projection(x), training=training)
        return self.output_norm(self._rounding.sums(add_residual(result, residual, self.residual_scale)))
