"""BERT's basic tokenizer in the graph: normalizes texts, splits them into words and keeps their offsets."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pocketbert.configs import TokenizerConfig
from pocketbert.tokenizers.bert_unicode import normalization
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, ISOLATED, SPACE, WORD
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import MAX_CHARACTERS_PER_WORD


class Words(NamedTuple):
    """A text batch's words, concatenated. Offsets are in code points.

    Attributes:
      strings: `[words]` UTF-8.
      rows: `[words]` int64, each word's text.
      special: `[words]` int32, the special token's index, or -1 for other words.
      begin: `[words]` int64, offset of the word's first character in its text.
      end: `[words]` int64, offset after its last character.
      byte_starts: `[words]` int64, position of the word's first byte in the concatenated `strings`.
      byte_begin: `[bytes]` int64, offset of each byte's original character.
      byte_end: `[bytes]` int64, offset after this character.
    """

    strings: tf.Tensor
    rows: tf.Tensor
    special: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    byte_starts: tf.Tensor
    byte_begin: tf.Tensor
    byte_end: tf.Tensor


@functools.lru_cache(maxsize=8)
def word_splitter(config: TokenizerConfig, special_tokens: tuple[str, ...], absent: int) -> WordSplitter:
    """Returns a splitter; vocabularies share it, since its graph is a tokenizer's largest part."""
    return WordSplitter(config, special_tokens, absent)


class WordSplitter(tf.Module):
    """BERT's basic tokenizer, with the results of Hugging Face's `tokenizers`.

    It drops control characters, U+0000 and U+FFFD, splits at white space and isolates punctuation. Options control
    lower-casing, removing nonspacing marks (after NFD), and isolating ideographs. A word with more than 100 characters
    becomes a word outside all vocabularies.

    Args:
      config: normalization for letters, accents and ideographs.
      special_tokens: words anywhere in a text. All begin with one character, found only there, so they cannot overlap.
      absent: first of consecutive code points outside all tokens: one for words that must become unknown, then one per
        special token.
    """

    def __init__(self, config: TokenizerConfig, special_tokens: tuple[str, ...], absent: int) -> None:
        super().__init__(name="word_splitter")
        self._special_tokens = special_tokens
        self._absent = absent
        tables = normalization(**dataclasses.asdict(config))
        # The pool's last entries are placeholders for special tokens.
        self._first_special_entry = len(tables.code)
        stand_ins = np.arange(len(special_tokens), dtype=np.int32) + absent + 1
        self._start = tf.constant(tables.start)
        self._count = tf.constant(tables.count)
        self._code = tf.constant(np.concatenate([tables.code, stand_ins]))
        self._kind = tf.constant(np.concatenate([tables.kind, np.full(len(stand_ins), ISOLATED, np.int8)]))
        self._combining = tf.constant(np.concatenate([tables.combining, np.zeros(len(stand_ins), np.uint8)]))
        self._split = tf.function(self._on_cpu, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    def __call__(self, texts: tf.Tensor) -> Words:
        """Splits texts.

        Args:
          texts: `[batch]` string, UTF-8. An invalid byte sequence counts as one dropped U+FFFD.
        """
        return self._split(texts)

    def _on_cpu(self, texts: tf.Tensor) -> Words:
        # A function does not take over its caller's device.
        with tf.device("CPU:0"):
            return self._words(texts)

    def _words(self, texts: tf.Tensor) -> Words:
        characters = tf.strings.unicode_decode(texts, "UTF-8", errors="replace", replacement_char=0xFFFD)
        all_values = characters.values
        given_rows = characters.value_rowids()

        start = tf.gather(self._start, all_values)
        count = tf.cast(tf.gather(self._count, all_values), tf.int32)
        token_lengths = tf.ones_like(all_values)
        if self._special_tokens:
            start, count, token_lengths = tf.cond(
                tf.reduce_any(all_values == ord(self._special_tokens[0][0])),
                lambda: self._mark_special_tokens(all_values, given_rows, start, count),
                lambda: (start, count, token_lengths),
            )
        origin = tf.repeat(tf.range(tf.size(all_values)), count)
        within = tf.range(tf.size(origin)) - tf.gather(tf.cumsum(count, exclusive=True), origin)
        entry, origin = self._in_canonical_order(tf.gather(start, origin) + within, within, origin, count, given_rows)
        kind = tf.cast(tf.gather(self._kind, entry), tf.int32)
        is_kept = kind != DROPPED
        kind = tf.boolean_mask(kind, is_kept)
        origin = tf.boolean_mask(origin, is_kept)
        code = tf.gather(self._code, tf.boolean_mask(entry, is_kept))

        rows = tf.gather(given_rows, origin)
        previous_kind = tf.concat([[SPACE], kind], 0)[:-1]
        previous_row = tf.concat([[tf.constant(-1, tf.int64)], rows], 0)[:-1]
        is_visible = kind != SPACE
        is_first = (previous_kind != WORD) | (kind == ISOLATED) | (previous_row != rows)
        origin = tf.boolean_mask(origin, is_visible)
        offset = tf.cast(origin, tf.int64) - tf.gather(characters.row_splits, tf.boolean_mask(rows, is_visible))
        return self._join(
            code=tf.boolean_mask(code, is_visible),
            is_first=tf.boolean_mask(is_first, is_visible),
            rows=tf.boolean_mask(rows, is_visible),
            begin=offset,
            end=offset + tf.cast(tf.gather(token_lengths, origin), tf.int64),
        )

    def _mark_special_tokens(
        self, codes: tf.Tensor, rows: tf.Tensor, start: tf.Tensor, count: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Replaces each special token's first character with its placeholder, and drops the others."""
        size = tf.size(codes)
        token_lengths = tf.ones_like(codes)
        padded = tf.pad(codes, [[0, max(map(len, self._special_tokens))]])
        padded_rows = tf.pad(rows, [[0, max(map(len, self._special_tokens))]], constant_values=-1)
        for index, token in enumerate(self._special_tokens):
            matches = padded_rows[len(token) - 1 : size + len(token) - 1] == rows
            for position, character in enumerate(token):
                matches &= padded[position : size + position] == ord(character)
            begins = tf.where(matches)[:, 0]
            start = tf.where(matches, self._first_special_entry + index, start)
            token_lengths = tf.where(matches, len(token), token_lengths)
            dropped = tf.reshape(begins[:, tf.newaxis] + tf.range(1, len(token), dtype=tf.int64), [-1, 1])
            count = tf.tensor_scatter_nd_update(count, begins[:, tf.newaxis], tf.ones_like(begins, tf.int32))
            count = tf.tensor_scatter_nd_update(count, dropped, tf.zeros([tf.size(dropped)], tf.int32))
        return start, count, token_lengths

    def _in_canonical_order(
        self, entry: tf.Tensor, within: tf.Tensor, origin: tf.Tensor, count: tf.Tensor, given_rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts the marks between two starters by combining class, including marks to drop later.

        Origins are not sorted: `tokenizers` only counts where the sorted text begins a new character of the original
        text.
        """
        combining = tf.cast(tf.gather(self._combining, entry), tf.int64)

        def ordered() -> tuple[tf.Tensor, tf.Tensor]:
            runs = tf.cumsum(tf.cast(combining == 0, tf.int64)) + tf.gather(given_rows, origin)
            order = tf.argsort(runs * 256 + combining, stable=True)
            rank = tf.cumsum(tf.cast(tf.gather(within, order) == 0, tf.int32)) - 1
            return tf.gather(entry, order), tf.gather(tf.boolean_mask(tf.range(tf.size(count)), count > 0), rank)

        is_unordered = (combining[1:] > 0) & (combining[1:] < combining[:-1])
        return tf.cond(tf.reduce_any(is_unordered), ordered, lambda: (entry, origin))

    def _join(self, code: tf.Tensor, is_first: tf.Tensor, rows: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> Words:
        """Joins visible characters into words."""
        word = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
        firsts = tf.where(is_first)[:, 0]
        bounds = tf.concat([firsts, [tf.size(code, tf.int64)]], 0)
        is_long = tf.gather(bounds[1:] - bounds[:-1] > MAX_CHARACTERS_PER_WORD, word)
        # Replace a too long word with one absent character, which the tokenizer does not match.
        code = tf.where(is_long, self._absent, code)
        is_kept = ~is_long | is_first
        kept_code = tf.boolean_mask(code, is_kept)
        kept_word = tf.boolean_mask(word, is_kept)
        joined = tf.RaggedTensor.from_value_rowids(kept_code, kept_word, tf.size(firsts), validate=False)
        byte_counts = 1 + sum(tf.cast(kept_code >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000))
        byte_positions = tf.cumsum(tf.cast(byte_counts, tf.int64), exclusive=True)
        special = tf.gather(code, firsts) - (self._absent + 1)
        return Words(
            strings=tf.strings.unicode_encode(joined, "UTF-8"),
            rows=tf.gather(rows, firsts),
            special=tf.where((special >= 0) & (special < len(self._special_tokens)), special, -1),
            begin=tf.gather(begin, firsts),
            end=tf.gather(end, bounds[1:] - 1),
            byte_starts=tf.gather(byte_positions, joined.row_splits[:-1]),
            byte_begin=tf.repeat(tf.boolean_mask(begin, is_kept), byte_counts),
            byte_end=tf.repeat(tf.boolean_mask(end, is_kept), byte_counts),
        )
