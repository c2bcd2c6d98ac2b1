"""Self-attention that returns its logits, unlike Keras' layer."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.layers.core import Dense, ResidualScale, RoundingLayer, add_residual, affine, make_norm
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.graph_form import GraphForm

ATTENTION_VECTORS = ("queries", "keys", "values")
ATTENTION_FEATURES = ("attention_logits", "attention_probs", *ATTENTION_VECTORS)


class Attention(RoundingLayer):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017), output map, residual and norm.

    The caller (`Block`) applies the projections, since some share an input. Shapes: B batch, S keys, T queries, N
    heads, A width of all heads.

    Args:
      config: encoder's architecture.
      query_size: input width for queries and keys.
      value_size: input width for values.
      scale_residual: multiply the residual by a factor per feature.
    """

    def __init__(
        self, config: EncoderConfig, query_size: int, value_size: int, *, scale_residual: bool = False
    ) -> None:
        super().__init__()
        self.query = Dense(query_size, config.attention_size)
        self.key = Dense(query_size, config.attention_size)
        self.value = Dense(value_size, config.attention_size)
        self.output_projection = Dense(config.attention_size, config.block_size)
        self.norm = make_norm(config.norm, config.block_size, config.layer_norm_eps)
        self.residual_scale = ResidualScale(config.block_size) if scale_residual else None
        self.probs_dropout = Dropout(config.attention_dropout)
        # The authors apply no dropout to sub-layers inside a bottleneck.
        self.output_dropout = Dropout(0.0 if config.bottleneck else config.hidden_dropout)
        self._config, self.scale = config, config.head_size**-0.5

    def attend(
        self,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        mask_bias: tf.Tensor,
        wanted: Collection[str],
        training: bool | None,
        relative: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes the context from queries, keys and values.

        Args:
          queries: [B, T, A].
          keys: [B, S, A].
          values: [B, S, A].
          mask_bias: [B, 1, 1, S], 0 for tokens and far below any logit for padding.
          wanted: names of features to return, from `ATTENTION_FEATURES`.
          training: whether dropout is active.
          relative: vectors of distances [R, H], for `RelativeAttention`.
        Returns:
          The context [B, T, A] and the wanted features: logits (scaled, before the mask) and probabilities (before
          dropout) [B, N, T, S]; queries, keys and values as passed.
        """
        count, size = self._config.num_attention_heads, self._config.head_size
        heads = [split_heads(x, count, size) for x in (queries * self.scale, keys, values)]
        logits = self._logits(heads[0], heads[1], relative, training)
        masked = self._rounding.masked(logits, mask_bias)
        probs = self._rounding.probabilities(tf.cast(tf.nn.softmax(tf.cast(masked, tf.float32)), logits.dtype))
        available = dict(zip(ATTENTION_FEATURES, (logits, probs, queries, keys, values), strict=True))
        context = tf.matmul(self.probs_dropout(probs, training=training), heads[2])
        context = tf.transpose(context, [0, 2, 1, 3])
        context = tf.reshape(context, tf.concat([tf.shape(queries)[:2], [self._config.attention_size]], axis=0))
        return context, {name: available[name] for name in wanted}

    def attend_to_inputs(
        self,
        queries: tf.Tensor,
        key_inputs: tf.Tensor,
        value_inputs: tf.Tensor,
        mask_bias: tf.Tensor,
        wanted: Collection[str] = (),
        training: bool | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes one query's context per example from the inputs of keys and values, without dropout.

        With the inputs x and y of keys and values and the probabilities p, each head has

          q·(x K + k) = (q K^T)·x + q·k  and  p (y V + v) = (p y) V + v,

        because the probabilities add up to 1. The softmax ignores q·k, which is the same for all keys. So the maps K
        and V apply to one row per head instead of one per token.

        Args:
          queries: [B, 1, A].
          key_inputs: [B, S, query_size].
          value_inputs: [B, S, value_size].
          mask_bias: [B, 1, 1, S].
          wanted: names of features to return: logits (without q·k), probabilities or queries.
          training: must be false.
        Returns:
          The context [B, 1, A], and the wanted features, as from `attend`.
        """
        assert not training
        size, count = self._config.head_size, self._config.num_attention_heads
        # [N, A]: 1 where a feature belongs to the head.
        own_head = tf.constant(np.repeat(np.eye(count, dtype=np.float32), size, axis=1))
        rows = affine(queries * size**-0.5 * own_head, tf.transpose(self.key.kernel), None)
        logits = tf.matmul(tf.expand_dims(rows, 1), tf.expand_dims(key_inputs, 1), transpose_b=True)
        probs = tf.nn.softmax(logits + mask_bias)
        mixed = tf.matmul(probs, tf.expand_dims(value_inputs, 1))
        context = tf.reduce_sum(affine(mixed, self.value.kernel, None) * own_head, axis=2)
        heads_first = [tf.transpose(x, [0, 2, 1, 3]) for x in (logits, probs)]
        available = dict(zip(ATTENTION_FEATURES, (*heads_first, queries), strict=False))
        return context + self.value.bias, {name: available[name] for name in wanted}

    def call(self, context: tf.Tensor, residual: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps the context [B, T, A] and adds `residual` [B, T, block_size], normalized."""
        result = self.output_dropout(self.output_projection(context), training=training)
        return self.norm(self._rounding.sums(add_residual(result, residual, self.residual_scale)))

    def _logits(
        self, queries: tf.Tensor, keys: tf.Tensor, relative: tf.Tensor | None, training: bool | None
    ) -> tf.Tensor:
        """Logits [B, N, T, S] of scaled queries [B, N, T, d] and keys [B, N, S, d]."""
        return tf.matmul(queries, keys, transpose_b=True)


def split_heads(x: tf.Tensor, num_heads: int, head_size: int) -> tf.Tensor:
    """[B, S, A] → [B, N, S, A/N]."""
    shape = tf.shape(x)
    return tf.transpose(tf.reshape(x, [shape[0], shape[1], num_heads, head_size]), [0, 2, 1, 3])


def mask_bias(mask: tf.Tensor, dtype: tf.DType, padding_bias: float = GraphForm.padding_bias) -> tf.Tensor:
    """Converts a mask, int32 [B, S] with 1 = token, to an additive mask for attention logits, [B, 1, 1, S]."""
    return tf.cast(1 - mask, dtype)[:, None, None, :] * tf.constant(max(padding_bias, float(dtype.min)), dtype)
