"""Ids to vectors: words, positions and segments."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig
from pocketbert.layers.core import Dense, Embedding, make_norm
from pocketbert.layers.dropout import Dropout


class Embeddings(tf_keras.layers.Layer):
    """The sum of word, position and segment vectors, normalized.

    MobileBERT (section 3.4) joins each word vector with its neighbours' before a linear map. What stands
    after the last token counts as `pad_token_id` whatever the batch is filled with, so that the content of
    padding changes nothing. Without padding the neighbour is zero, as in the authors' code; so the row of
    padding starts at zero and gets no gradient, neither here, where a masked token may have become [PAD], nor
    as a row of the output matrix, and (but for imported weights whose row is not zero) the length of padding
    changes nothing either.

    RoBERTa: positions count from `position_offset` for right-padded input. With one segment row
    (`type_vocab_size` 1) or none, segment ids are not read.

    Args:
      config: the encoder's architecture.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        projected_first = config.embedding_projection == "word"
        width = config.hidden_size if projected_first else config.embedding_size
        self.word = Embedding(config.vocab_size, config.embedding_size)
        self.position = Embedding(config.num_position_rows, width)
        if config.type_vocab_size:
            self.token_type = Embedding(config.type_vocab_size, width)
        if config.embedding_projection != "none":
            inputs = config.embedding_size * (3 if config.trigram else 1)
            self.projection = Dense(inputs, config.hidden_size)
        self.norm = make_norm(config.norm, width, config.embedding_layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout)
        self._config = config

    def call(self, inputs: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps ids, mask and segments, int32 [B, S], to [B, S, hidden_size]."""
        config = self._config
        ids = inputs["input_word_ids"]
        x = self._trigrams(ids, inputs["input_mask"]) if config.trigram else self.word(ids)
        if config.embedding_projection == "word":
            x = self.projection(x)
        first = config.position_offset
        x += self.position.table[first : first + tf.shape(ids)[1]]
        if config.type_vocab_size:
            x += self.token_type.table[0] if config.type_vocab_size == 1 else self.token_type(inputs["input_type_ids"])
        x = self.dropout(self.norm(x), training=training)
        return self.projection(x) if config.embedding_projection == "output" else x

    def output_table(self) -> tf.Tensor:
        """The word table as an output matrix, [vocab_size, embedding_size]."""
        table, config = tf.convert_to_tensor(self.word.table), self._config
        if not config.trigram:
            return table
        is_word = tf.range(config.vocab_size)[:, None] != config.pad_token_id
        return _learned_where(is_word, table)

    def _trigrams(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Joins next, current and previous word vectors: [B, S] → [B, S, 3·embedding_size]."""
        ids = ids * mask
        if self._config.pad_token_id:
            ids += self._config.pad_token_id * (1 - mask)
        is_word = (ids != self._config.pad_token_id)[:, :, None]
        x = _learned_where(is_word, self.word(ids))
        following = tf.pad(x[:, 1:], [[0, 0], [0, 1], [0, 0]])
        previous = tf.pad(x[:, :-1], [[0, 0], [1, 0], [0, 0]])
        return tf.concat([following, x, previous], axis=-1)


@tf.custom_gradient
def _learned_where(places: tf.Tensor, x: tf.Tensor) -> Any:
    """The value of x; its gradient only at the places, of a shape that is stretched to x's, that are true."""
    return tf.identity(x), lambda upstream: (None, upstream * tf.cast(places, upstream.dtype))
