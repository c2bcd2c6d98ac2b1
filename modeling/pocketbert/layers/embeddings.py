"""Input embeddings: words, positions and segments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pocketbert.configs import EncoderConfig
from pocketbert.layers.core import Dense, Embedding, RoundingLayer, make_norm
from pocketbert.layers.dropout import Dropout


class Embeddings(RoundingLayer):
    """Sums word, position and segment embeddings, and normalizes the sum.

    MobileBERT (section 3.4) concatenates each word embedding with its neighbours' before a linear map. Positions after
    the last token count as `pad_token_id`, so padding's content has no effect. Without padding the neighbour is zero,
    as in the authors' code and in transformers, or the padding row in `padding_after_texts`. This row starts at zero
    and gets no gradient, neither here (a masked token may have become [PAD]) nor as a row in the output matrix. In
    released weights it is not zero.

    RoBERTa and XLM-R: positions count from `position_offset`, whatever the ids are. transformers counts the ids except
    `pad_token_id`. Both agree at real tokens if padding is on the right and no real token is `pad_token_id`. With one
    segment row (`type_vocab_size` 1) or none, segment ids are not read.

    ModernBERT has word embeddings only, and a norm without beta.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.hidden_size if config.projects_words else config.embedding_size
        self.word = Embedding(config.vocab_size, config.embedding_size)
        if config.has_position_table:
            self.position = Embedding(config.num_position_rows, width)
        if config.type_vocab_size:
            self.token_type = Embedding(config.type_vocab_size, width)
        if config.embedding_projection != "none":
            inputs = config.embedding_size * (3 if config.trigram else 1)
            self.projection = Dense(inputs, config.hidden_size, bias=config.embedding_projection != "factors")
        norm = "layer_norm" if config.norm == "rms" else config.norm
        self.norm = make_norm(norm, width, config.embedding_layer_norm_eps, beta=config.rotary is None)
        self.dropout = Dropout(config.hidden_dropout)
        self._config = config
        self.padding_after_texts = False

    def call(self, inputs: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps ids, mask and segments, int32 [B, S], to [B, S, hidden_size]."""
        config = self._config
        ids = inputs["input_word_ids"]
        x = self._trigrams(ids, inputs["input_mask"]) if config.trigram else self.word(ids)
        if config.projects_words:
            x = self.projection(x)
        if config.has_position_table:
            first = config.position_offset
            x = self._rounding.sums(x + self.position.table[first : first + tf.shape(ids)[1]])
        if config.type_vocab_size:
            x += self.token_type.table[0] if config.type_vocab_size == 1 else self.token_type(inputs["input_type_ids"])
            x = self._rounding.sums(x)
        x = self.dropout(self.norm(x), training=training)
        return self.projection(x) if config.embedding_projection == "output" else x

    def output_table(self) -> tf.Tensor:
        """The word embedding table as an output matrix, [vocab_size, embedding_size]."""
        table, config = tf.convert_to_tensor(self.word.table), self._config
        if not config.trigram:
            return table
        is_word = tf.range(config.vocab_size)[:, None] != config.pad_token_id
        return _learned_where(is_word, table)

    def _trigrams(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Concatenates next, current and previous word embeddings: [B, S] → [B, S, 3·embedding_size]."""
        if self.padding_after_texts:
            ids, mask = (tf.pad(x, [[0, 0], [0, 1]]) for x in (ids, mask))
        ids = ids * mask
        if self._config.pad_token_id:
            ids += self._config.pad_token_id * (1 - mask)
        is_word = (ids != self._config.pad_token_id)[:, :, None]
        x = _learned_where(is_word, self.word(ids))
        following = x[:, 1:]
        if self.padding_after_texts:
            x = x[:, :-1]
        else:
            following = tf.pad(following, [[0, 0], [0, 1], [0, 0]])
        previous = tf.pad(x[:, :-1], [[0, 0], [1, 0], [0, 0]])
        return tf.concat([following, x, previous], axis=-1)


@contextlib.contextmanager
def padding_after_texts(model: Any) -> Iterator[None]:
    """Makes `model` read every row in this block as if padding followed, even if the text fills the row.

    Training, prediction and export call models with trigrams so. A text then has one value, whatever its batch and the
    file's length. Other models have this property without it.
    """
    embeddings = getattr(getattr(model, "encoder", None), "embeddings", None)
    if not isinstance(embeddings, Embeddings):
        yield
        return
    before, embeddings.padding_after_texts = embeddings.padding_after_texts, True
    try:
        yield
    finally:
        embeddings.padding_after_texts = before


@tf.custom_gradient
def _learned_where(places: tf.Tensor, x: tf.Tensor) -> Any:
    """Returns x, with a gradient only where `places`, broadcast to x, is true."""
    return tf.identity(x), lambda upstream: (None, upstream * tf.cast(places, upstream.dtype))
