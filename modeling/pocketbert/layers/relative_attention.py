"""DeBERTa's disentangled attention: logits from contents, and from contents and distances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, RelativeConfig
from pocketbert.layers.attention import Attention, split_heads
from pocketbert.layers.core import Dense, Embedding, LayerNorm
from pocketbert.layers.dropout import Dropout


class RelativeEmbeddings(tf_keras.layers.Layer):
    """A normalized vector for each bucket of distances. The encoder owns it, and every layer reads it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        assert config.relative is not None
        self.embedding = Embedding(2 * config.relative.buckets, config.hidden_size)
        self.norm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def vectors(self) -> tf.Tensor:
        """Returns the vectors, [2·buckets, H]."""
        return self.norm(tf.convert_to_tensor(self.embedding.table))


class RelativeAttention(Attention):
    """Disentangled attention (He et al. 2021, "DeBERTa", section 3.1): contents and positions share their maps.

    A logit sums three products: query by key (content to content), query by the key of the distance (content to
    position), and key by the query of the distance (position to content). The sum is divided by sqrt(3·d) for heads of
    width d.

    Departures from the authors' code, with equal results at tokens: columns are in the order of the distances, so that
    reshaping moves each row to its place (Dai et al. 2019, "Transformer-XL", appendix B) instead of a gather operator;
    and padding attends like a token instead of to nothing.

    Shapes: B batch, S keys, T queries, N heads, d head_size, H hidden_size, A width of all heads.

    Args:
      config: encoder's architecture, with `relative`.
      query_size: input width for queries and keys.
      value_size: input width for values.
      scale_residual: multiply the residual by a factor per feature.
      in_blocks: see `GraphForm.in_blocks`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        query_size: int,
        value_size: int,
        *,
        scale_residual: bool = False,
        in_blocks: bool = True,
    ) -> None:
        super().__init__(config, query_size, value_size, scale_residual=scale_residual)
        assert config.relative is not None
        self.scale = (3 * config.head_size) ** -0.5
        self._rows = distance_rows(config.relative, config.max_position_embeddings)
        self._in_blocks = in_blocks
        self.relative_dropout = Dropout(config.hidden_dropout)

    def _logits(
        self, queries: tf.Tensor, keys: tf.Tensor, relative: tf.Tensor | None, training: bool | None
    ) -> tf.Tensor:
        """See `Attention._logits`. A single query is the first token's; others are those of all tokens."""
        assert relative is not None
        relative = self.relative_dropout(relative, training=training)
        contents = super()._logits(queries, keys, relative, training)
        length = keys.shape[2] or tf.shape(keys)[2]
        if queries.shape[2] == 1:
            rows = self._rows_between(0, -length)
            of_position = tf.matmul(queries, self._mapped(self.key, relative, rows), transpose_b=True)
            products = keys * (self._mapped(self.query, relative, rows) * self.scale)
            return contents + of_position + tf.reduce_sum(products, axis=-1)[:, :, tf.newaxis]
        key_rows, query_rows = self._rows_between(length - 1, -length - 1), self._rows_between(length, -length)[::-1]
        of_position = by_distance(queries, self._mapped(self.key, relative, key_rows), self._in_blocks)
        of_content = by_distance(keys, self._mapped(self.query, relative, query_rows) * self.scale, self._in_blocks)
        return contents + of_position + tf.transpose(of_content, [0, 1, 3, 2])

    def _rows_between(self, first: int | tf.Tensor, end: int | tf.Tensor) -> np.ndarray | tf.Tensor:
        """Returns the rows of the distances first, first - 1, …, end + 1: an array, unless a limit is a tensor."""
        longest = len(self._rows) // 2
        rows = self._rows if isinstance(first, int) and isinstance(end, int) else tf.constant(self._rows)
        return rows[longest - first : longest - end]

    def _mapped(self, linear: Dense, relative: tf.Tensor, rows: np.ndarray | tf.Tensor) -> tf.Tensor:
        """Maps the vectors [buckets, H] in some rows [C] to heads, [1, N, C, d]. Each vector is mapped once."""
        is_array = isinstance(rows, np.ndarray)
        low, high = (rows.min(), rows.max()) if is_array else (tf.reduce_min(rows), tf.reduce_max(rows))
        vectors = linear(relative[low : high + 1])
        rows_of_heads = tf.gather(vectors, rows - low)[tf.newaxis]
        return split_heads(rows_of_heads, self._config.num_attention_heads, self._config.head_size)


def distance_rows(relative: RelativeConfig, longest: int) -> np.ndarray:
    """Returns each distance's row in the table of relative embeddings, for the distances longest, …, -longest.

    A distance is a query's position minus a key's. Half of the buckets on each side hold one distance; farther
    distances share the others, whose width grows with the distance (the authors' code, `make_log_bucket_position`).

    Returns:
      int32 [2·longest + 1], from 0 to 2·buckets - 1.
    """
    distances = np.arange(longest, -longest - 1, -1)
    exact = relative.buckets // 2
    # float32 as in the authors' code: rounding decides at the limit of a bucket.
    shares = np.log((np.maximum(np.abs(distances), exact) / exact).astype(np.float32))
    shares /= np.log(np.float32((relative.max_distance - 1) / exact))
    shared = np.sign(distances) * (np.ceil(shares * np.float32(exact - 1)) + exact)
    buckets = np.where(np.abs(distances) <= exact, distances, shared)
    return np.clip(buckets + relative.buckets, 0, 2 * relative.buckets - 1).astype(np.int32)


def num_exported_values(config: EncoderConfig, lengths: Sequence[int], *, first_token_only: bool = False) -> int:
    """Counts the constants for distances in a file with some lengths, which replace the table there.

    Each layer has keys and queries. Two blocks of half of the tokens need three rows per token, whole texts two, and a
    single query one. If a length is odd, texts of all lengths are whole (`GraphForm.in_blocks`).
    """
    rows_a_token = 3 if suits_blocks(lengths) else 2
    rows = (config.num_layers - first_token_only) * rows_a_token + first_token_only
    return 2 * rows * config.attention_size * sum(lengths)


def suits_blocks(lengths: Sequence[int]) -> bool:
    """Returns whether products with distances can be computed in blocks in the graphs of all lengths."""
    return not any(length % 2 for length in lengths)


def by_distance(x: tf.Tensor, rows: tf.Tensor, in_blocks: bool = True) -> tf.Tensor:
    """Multiplies each token by the row of its distance to every token.

    With a known, even length, tokens are in two blocks: n tokens meet S + n - 1 distances only, which saves a quarter
    of the products. The blocks are one product with 2N heads. One more column makes room for the
    shift; its values are not read.

    Args:
      x: tokens, [B, N, S, d].
      rows: [1, N, 2S, d], row c for tokens i and j with j - i + S - 1 = c.
      in_blocks: see `GraphForm.in_blocks`.
    Returns:
      Products of x[i] with the row for i and j, [B, N, S, S].
    """
    _, heads, length, width = x.shape
    if not in_blocks or length is None or length % 2:
        return _shifted(tf.matmul(x, rows, transpose_b=True))
    size = length // 2
    blocks = tf.reshape(x, [-1, 2 * heads, size, width])
    columns = tf.stack([rows[:, :, size:], rows[:, :, : 3 * size]], axis=2)
    products = tf.matmul(blocks, tf.reshape(columns, [1, 2 * heads, 3 * size, width]), transpose_b=True)
    return tf.reshape(_shifted(products), [-1, heads, length, length])


def _shifted(products: tf.Tensor) -> tf.Tensor:
    """Moves row i of a block [B, N, n, S+n] by n - 1 - i to the left, and keeps S columns: [B, N, n, S]."""
    static, dynamic = products.shape, tf.shape(products)
    batch, heads, tokens, columns = (static[axis] or dynamic[axis] for axis in range(4))
    flat = tf.reshape(products, [batch, heads, tokens * columns])
    # Without one value in each row, row i starts i values further to the right.
    flat = tf.slice(flat, [0, 0, 0], [batch, heads, tokens * (columns - 1)])
    shorter = tf.reshape(flat, [batch, heads, tokens, columns - 1])
    return tf.slice(shorter, [0, 0, 0, tokens - 1], [batch, heads, tokens, columns - tokens])
