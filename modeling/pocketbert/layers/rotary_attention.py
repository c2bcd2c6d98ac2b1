"""ModernBERT's attention (Warner et al. 2024, section 2.1): rotary positions, and a window in local layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.layers.attention import ATTENTION_FEATURES, split_heads
from pocketbert.layers.core import Dense, RoundingLayer, make_norm
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.local_blocks import LocalBlocks
from pocketbert.layers.rotary_positions import rotated, rotations

# Above twice this length, global attention takes this many queries at a time: its memory grows with their number.
_QUERIES = 512


class RotaryAttention(RoundingLayer):
    """Norm, multi-head attention with rotary positions, and output map; without biases and without the residual.

    A token in a local layer attends to tokens at most window / 2 away. Layer 0 has no norm, since the embeddings end
    with one. Shapes: B batch, S keys, T queries, N heads, D head size, A width of all heads.

    Args:
      config: encoder's architecture, with `rotary`.
      index: layer number, counted from 0.
      padding_bias: see `GraphForm.padding_bias`.
      in_blocks: see `GraphForm.in_blocks`.
    """

    def __init__(self, config: EncoderConfig, index: int, padding_bias: float, in_blocks: bool = True) -> None:
        super().__init__()
        assert config.rotary is not None
        hidden, size = config.hidden_size, config.attention_size
        self.norm = make_norm(config.norm, hidden, config.layer_norm_eps, beta=False) if index else None
        self.query = Dense(hidden, size, bias=False)
        self.key = Dense(hidden, size, bias=False)
        self.value = Dense(hidden, size, bias=False)
        self.output_projection = Dense(size, hidden, bias=False)
        self.probs_dropout = Dropout(config.attention_dropout)
        # transformers has one rate for both.
        self.output_dropout = Dropout(config.attention_dropout)
        self._num_heads, self._head_size = config.num_attention_heads, config.head_size
        self._window = config.rotary.window_of(index)
        self._theta = config.rotary.theta if self._window is None else config.rotary.local_theta
        self._padding_bias, self._in_blocks = padding_bias, in_blocks

    def attend(
        self,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        mask_bias: tf.Tensor,
        wanted: Collection[str] = (),
        training: bool | None = None,
        positions: tf.Tensor | None = None,
        first_token_only: bool = False,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes the context from queries, keys and values.

        In a local layer with texts above 1.5 windows, blocks of window / 2 queries see three blocks of keys, unless
        `wanted` has logits or probabilities. In a global layer with long texts, blocks of queries see all keys.

        Args:
          queries: [B, T, A], without positions.
          keys: [B, S, A], without positions.
          values: [B, S, A].
          mask_bias: [B, 1, 1, S], 0 for tokens and far below any logit for padding.
          wanted: names of features to return, from `ATTENTION_FEATURES`.
          training: whether dropout is active.
          positions: the queries' positions, int32 [B, T]; None for 0 to T - 1.
          first_token_only: whether the first token is the only query (T = 1).
        Returns:
          The context [B, T, A] and the wanted features: logits (scaled, before the masks) and probabilities (before
          dropout) [B, N, T, S]; queries, keys and values as passed.
        """
        all_rows = positions is None and not first_token_only
        needs_matrices = bool({"attention_logits", "attention_probs"} & set(wanted))
        vectors = dict(zip(ATTENTION_FEATURES[2:], (queries, keys, values), strict=True))
        length = count_of(keys)
        if self._window is not None and self._in_blocks and all_rows and not needs_matrices:
            blocks = LocalBlocks(length, self._window)
            if blocks.pay:
                context = self._attend_in_blocks(blocks, queries, keys, values, mask_bias, training)
                return context, {name: vectors[name] for name in wanted}
        heads = self._split_heads(queries), self._split_heads(keys), self._split_heads(values)
        cosines, sines = rotations(
            count_of(queries) if positions is None else positions, self._head_size, self._theta, self._head_size**-0.5
        )
        if positions is not None:
            cosines, sines = (table[:, tf.newaxis] for table in (cosines, sines))
        rotated_queries = rotated(heads[0], cosines, sines)
        rotated_keys = rotated(heads[1], *rotations(length, self._head_size, self._theta))
        if self._window is not None:
            mask_bias = tf.minimum(mask_bias, self._window_bias(queries, length, positions, mask_bias.dtype))
        masked = functools.partial(self._rounding.masked, mask_bias=mask_bias)
        count = queries.shape[1]
        if self._window is None and count is not None and count > 2 * _QUERIES and not needs_matrices:
            parts = [rotated_queries[:, :, first : first + _QUERIES] for first in range(0, count, _QUERIES)]
            contexts = [self._products(part, rotated_keys, heads[2], masked, training)[0] for part in parts]
            return self._joined(tf.concat(contexts, axis=2)), {name: vectors[name] for name in wanted}
        context, logits, probs = self._products(rotated_queries, rotated_keys, heads[2], masked, training)
        available = {**vectors, "attention_logits": logits, "attention_probs": probs}
        return self._joined(context), {name: available[name] for name in wanted}

    def call(self, context: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps the context [B, T, A] to [B, T, hidden_size]."""
        return self.output_dropout(self.output_projection(context), training=training)

    def _products(
        self,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        masked: Callable[[tf.Tensor], tf.Tensor],
        training: bool | None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Context [B, N, T, D], logits and probabilities [B, N, T, S] from rotated heads; `masked` masks logits."""
        logits = tf.matmul(queries, keys, transpose_b=True)
        masked_logits = tf.cast(masked(logits), tf.float32)
        probs = self._rounding.probabilities(tf.cast(tf.nn.softmax(masked_logits), logits.dtype))
        return tf.matmul(self.probs_dropout(probs, training=training), values), logits, probs

    def _attend_in_blocks(
        self,
        blocks: LocalBlocks,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        mask_bias: tf.Tensor,
        training: bool | None,
    ) -> tf.Tensor:
        """The context [B, S, A] of a local layer, with each block of a head as a head of its own."""
        heads = [self._split_heads(x) for x in (queries, keys, values)]
        scales = (self._head_size**-0.5, 1.0)
        tables = [rotations(blocks.length, self._head_size, self._theta, scale) for scale in scales]
        rotated_queries, rotated_keys = (rotated(x, *table) for x, table in zip(heads[:2], tables, strict=True))
        bias = blocks.mask_bias(mask_bias, self._far(mask_bias.dtype))
        context, _, _ = self._products(
            blocks.rows(rotated_queries),
            blocks.with_neighbours(rotated_keys),
            blocks.with_neighbours(heads[2]),
            functools.partial(blocks.masked, mask_bias=bias),
            training,
        )
        return self._joined(blocks.joined(context, self._num_heads))

    def _far(self, dtype: tf.DType) -> float:
        return max(self._padding_bias, float(dtype.min))

    def _window_bias(self, queries: tf.Tensor, length: Any, positions: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
        """0 where a query's window has the key, else the padding bias; [1, 1, T, S], or [B, 1, T, S] at positions."""
        assert self._window is not None
        rows = tf.range(count_of(queries))[tf.newaxis] if positions is None else positions
        distances = tf.abs(rows[:, tf.newaxis, :, tf.newaxis] - tf.range(length))
        return tf.where(distances <= self._window // 2, tf.zeros([], dtype), tf.constant(self._far(dtype), dtype))

    def _split_heads(self, x: tf.Tensor) -> tf.Tensor:
        return split_heads(x, self._num_heads, self._head_size)

    def _joined(self, context: tf.Tensor) -> tf.Tensor:
        """[B, N, T, D] → [B, T, A]."""
        context = tf.transpose(context, [0, 2, 1, 3])
        shape = tf.shape(context)
        return tf.reshape(context, [shape[0], shape[1], self._num_heads * self._head_size])


def count_of(x: tf.Tensor) -> Any:
    """Number of tokens in [B, S, …], an int if the graph's shape tells it."""
    return tf.shape(x)[1] if x.shape[1] is None else x.shape[1]
