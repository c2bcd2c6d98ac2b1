"""ModernBERT's layer (Warner et al. 2024, section 2.1): norms before the sub-layers, gated network, no biases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.layers.attention import ATTENTION_VECTORS
from pocketbert.layers.core import Dense, RoundingLayer, activate, make_norm, project
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.rotary_attention import RotaryAttention


class RotaryBlock(tf_keras.layers.Layer):
    """x + attention(norm(x)), then x + network(norm(x)); has the calls of `Block`.

    The feature map is the sum before the next norm, as in transformers. Queries and keys among the features have no
    positions yet. With `norm="rms"` (export), the embeddings have a mean, and the residual stream has none: layer 0
    removes it from its residual.

    Args:
      config: encoder's architecture, with `rotary`.
      index: layer number, counted from 0.
      fused: compute queries, keys and values as one matrix product.
      first_token_only: compute the output for the first token only.
      padding_bias: see `GraphForm.padding_bias`.
      in_blocks: see `GraphForm.in_blocks`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        index: int,
        *,
        fused: bool,
        first_token_only: bool,
        padding_bias: float,
        in_blocks: bool,
    ) -> None:
        super().__init__()
        self.attention = RotaryAttention(config, index, padding_bias, in_blocks)
        self.feed_forwards = [GatedFeedForward(config)]
        self._centres = config.norm == "rms" and index == 0
        self._fused = fused
        self._first_token_only = first_token_only

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
    ) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
        """Runs the layer; for arguments and results see `Block.call`."""
        attention, first_token_only = self.attention, self._first_token_only and is_last
        normalized = x if attention.norm is None else attention.norm(x)
        pairs = [
            (_rows(normalized, positions, first_token_only), attention.query),
            (normalized, attention.key),
            (normalized, attention.value),
        ]
        queries, keys, values = project(pairs, fused=self._fused)
        if attention_only and set(wanted) <= set(ATTENTION_VECTORS):
            vectors = dict(zip(ATTENTION_VECTORS, (queries, keys, values), strict=True))
            return None, {name: vectors[name] for name in wanted}
        context, features = attention.attend(
            queries, keys, values, mask_bias, wanted, training, positions, first_token_only
        )
        if attention_only:
            return None, features
        residual = _rows(x, positions, first_token_only)
        if self._centres:
            residual -= tf.reduce_mean(residual, axis=-1, keepdims=True)
        inner = residual + attention(context, training=training)
        for feed_forward in self.feed_forwards if feed_forwards is None else feed_forwards:
            inner = feed_forward(inner, training=training)
        return inner, features

    def compute_first_token_only(self) -> None:
        """Computes the last layer's output for the first token only from now on."""
        self._first_token_only = True


def _rows(x: tf.Tensor, positions: tf.Tensor | None, first_token_only: bool) -> tf.Tensor:
    """Returns the rows to compute the output for."""
    if positions is not None:
        return tf.gather(x, positions, batch_dims=1)
    return x[:, :1] if first_token_only else x


class GatedFeedForward(RoundingLayer):
    """x + (activation(n·intermediate) ∘ n·gate)·output with n = norm(x) (GeGLU, Shazeer 2020), without biases.

    The two maps are one tensor in transformers' files. Two products are faster than one and a split. Dropout comes
    before the output map.

    Args:
      config: encoder's architecture.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.norm = make_norm(config.norm, config.hidden_size, config.layer_norm_eps, beta=False)
        self.intermediate = Dense(config.hidden_size, config.intermediate_size, bias=False)
        self.gate = Dense(config.hidden_size, config.intermediate_size, bias=False)
        self.output_projection = Dense(config.intermediate_size, config.hidden_size, bias=False)
        self.dropout = Dropout(config.hidden_dropout)
        self._activation = config.activation

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps [B, S, hidden_size] to the same shape."""
        normalized = self.norm(x)
        inner = activate(self.intermediate(normalized), self._activation) * self.gate(normalized)
        return x + self.output_projection(self.dropout(inner, training=training))
