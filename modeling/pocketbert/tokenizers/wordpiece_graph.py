"""WordPiece as TensorFlow functions, traced once per process and vocabulary."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from pocketbert.configs import TokenizerConfig
from pocketbert.tokenizers.framing import packed
from pocketbert.tokenizers.normalizer_model import normalizer_model
from pocketbert.tokenizers.words import word_splitter
from pocketbert_runtime.tokenizers.bert_characters import IDEOGRAPHS
from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import (
    CLS,
    MAX_CHARACTERS_PER_WORD,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
)

# The first private-use character. The normalization drops them, so they never occur in a text when it is matched.
_FIRST_PRIVATE_USE = 0xE000
_MAX_BYTES_PER_CHARACTER = 4
_PARTS = min(4, os.cpu_count() or 1)
# A process for several languages has a few vocabularies.
_MOST_KEPT = 8


@functools.lru_cache(maxsize=_MOST_KEPT)
def wordpiece_graph(tokens: tuple[str, ...], config: TokenizerConfig, special_tokens: bool) -> WordPieceGraph:
    """Returns a vocabulary's functions. Equal arguments return the same object, so that tracing happens once.

    Args:
      tokens: the vocabulary, by id.
      config: normalization for letters, accents and ideographs.
      special_tokens: whether a literal `[SEP]` or similar in a text is the special token.
    """
    # The first call may be inside another graph.
    with tf.init_scope():
        return WordPieceGraph(tokens, config, special_tokens)


class WordPieceGraph(tf.Module):
    """Tokenizes string tensors `[batch]`. See `wordpiece_graph` for the arguments.

    Attributes:
      frame: special tokens around texts.
      tokenize: texts → ids, ragged int32 `[batch, tokens]`.
      tokenize_with_offsets: texts → ids, starts and ends, ragged int32 `[batch, tokens]`.
      encode: texts, max_length, pad_to (0 for the longest row) → model inputs, int32 `[batch, length]`.
      encode_pairs: texts, pairs, max_length, pad_to → model inputs.
    """

    def __init__(self, tokens: Sequence[str], config: TokenizerConfig, special_tokens: bool) -> None:
        super().__init__(name="word_piece_graph")
        self._lowercase = config.lowercase
        ids = {token: position for position, token in enumerate(tokens)}
        self._unk_id = ids[UNK]
        self.frame = Frame(first=ids[CLS], last=ids[SEP], pad=ids[PAD])
        found_in_text = SPECIAL_TOKENS if special_tokens else ()
        absent = _absent_code_point(tokens)
        with tf.device("CPU:0"):
            self._special_ids = tf.constant([ids[token] for token in SPECIAL_TOKENS], tf.int32)
            self._splitter = word_splitter(config, found_in_text, absent)
            self._text_pieces = tf_text.FastWordpieceTokenizer(
                list(tokens), max_bytes_per_word=MAX_CHARACTERS_PER_WORD, token_out_type=tf.int32, unknown_token=UNK
            )
            model = normalizer_model(
                vocabulary_characters=frozenset("".join(tokens)), absent=absent, **dataclasses.asdict(config)
            )
            self._normalizer = tf_text.FastBertNormalizer(
                model_buffer=tf.constant(np.frombuffer(model.buffer, np.uint8))
            )
            self._word_pieces = tf_text.FastWordpieceTokenizer(
                list(tokens),
                max_bytes_per_word=MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER,
                token_out_type=tf.int32,
                unknown_token=UNK,
                no_pretokenization=True,
            )
        excluded = ["\ud800-\uf8ff", "\U000f0000-\U0010ffff", *model.left_out]
        if not config.tokenize_chinese_chars:
            # FastWordpieceTokenizer always splits at ideographs.
            excluded += [f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPHS]
        self._regular_text = _regular_text(excluded, found_in_text)
        # A "[" may begin a special token.
        self._simple_text = r"[\t\n\r -Z\\-~]*" if special_tokens else r"[\t\n\r -~]*"

        strings = tf.TensorSpec([None], tf.string)
        number = tf.TensorSpec([], tf.int32)
        self.tokenize = tf.function(self._tokenize_graph, input_signature=[strings], autograph=False)
        self.tokenize_with_offsets = tf.function(
            self._tokenize_with_offsets_graph, input_signature=[strings], autograph=False
        )
        # These call `tokenize`, so that its large graph exists only once.
        self.encode = tf.function(self._encode_graph, input_signature=[strings, number, number], autograph=False)
        self.encode_pairs = tf.function(
            self._encode_pairs_graph, input_signature=[strings, strings, number, number], autograph=False
        )

    def _tokenize_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes all texts with the fast path, then the few irregular ones with the slow path."""
        with tf.device("CPU:0"):
            size = tf.size(texts)
            # Each part runs on its own thread: the operations use only one.
            parts = [texts[size * part // _PARTS : size * (part + 1) // _PARTS] for part in range(_PARTS)]
            tokenized, regular = zip(*map(self._ids_of_regular, parts), strict=True)
            ids = tf.concat(tokenized, 0)
            is_regular = tf.concat(regular, 0)

            def repaired() -> tuple[tf.Tensor, tf.Tensor]:
                others = self._tokens_of_any(tf.boolean_mask(texts, ~is_regular))[0]
                rank = size - 1 + tf.cumsum(tf.cast(~is_regular, tf.int32))
                result = tf.gather(tf.concat([ids, others], 0), tf.where(is_regular, tf.range(size), rank))
                return result.values, result.row_splits

            values, splits = tf.cond(tf.reduce_all(is_regular), lambda: (ids.values, ids.row_splits), repaired)
            return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def _ids_of_regular(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns ids from the fast path, and whether they are valid for each text."""
        ids, starts, ends = self._text_pieces.tokenize_with_offsets(self._normalizer.normalize(texts))
        is_regular = tf.strings.regex_full_match(texts, self._regular_text)
        # The fast path limits words to 100 bytes, not characters.
        long = tf.where(ends.values - starts.values > MAX_CHARACTERS_PER_WORD)
        rows = tf.searchsorted(ids.row_splits, long[:, 0], side="right") - 1
        return ids, tf.tensor_scatter_nd_update(is_regular, rows[:, tf.newaxis], tf.zeros_like(rows, tf.bool))

    def _tokenize_with_offsets_graph(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        return self._tokens(texts)

    def _encode_graph(self, texts: tf.Tensor, max_length: tf.Tensor, pad_to: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            return packed(self.frame, self.tokenize(texts), None, max_length, pad_to)

    def _encode_pairs_graph(
        self, texts: tf.Tensor, pairs: tf.Tensor, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            tf.debugging.assert_equal(tf.size(texts), tf.size(pairs), "each text must have a pair")
            both = self.tokenize(tf.concat([texts, pairs], 0))
            return packed(self.frame, both[: tf.size(texts)], both[tf.size(texts) :], max_length, pad_to)

    def _tokens(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes with offsets: ASCII, where bytes are characters, with tensorflow-text; others on the slow path."""
        with tf.device("CPU:0"):
            is_simple = tf.strings.regex_full_match(texts, self._simple_text)

            def all_simple() -> tuple[tf.Tensor, ...]:
                return _components(self._tokens_of_simple(texts))

            def mixed() -> tuple[tf.Tensor, ...]:
                simple, other = tf.where(is_simple)[:, 0], tf.where(~is_simple)[:, 0]
                order = tf.argsort(tf.concat([simple, other], 0))
                parts = zip(
                    self._tokens_of_simple(tf.gather(texts, simple)),
                    self._tokens_of_any(tf.gather(texts, other)),
                    strict=True,
                )
                return _components(tuple(tf.gather(tf.concat(part, 0), order) for part in parts))

            splits, *values = tf.cond(tf.reduce_all(is_simple), all_simple, mixed)
            ids, starts, ends = (tf.RaggedTensor.from_row_splits(value, splits, validate=False) for value in values)
            return ids, starts, ends

    def _tokens_of_simple(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        if self._lowercase:
            texts = tf.strings.lower(texts)
        ids, starts, ends = self._text_pieces.tokenize_with_offsets(texts)
        return ids, tf.cast(starts, tf.int32), tf.cast(ends, tf.int32)

    def _tokens_of_any(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        words = self._splitter(texts)
        tokens, starts, ends = self._word_pieces.tokenize_with_offsets(words.strings)
        word = tokens.value_rowids()
        special = tf.gather(words.special, word)
        is_unknown = tokens.values == self._unk_id
        byte_start = tf.gather(words.byte_starts, word)
        last_byte = tf.maximum(byte_start + tf.cast(ends.values, tf.int64) - 1, 0)
        rows = tf.gather(words.rows, word)
        values = (
            tf.where(special >= 0, tf.gather(self._special_ids, tf.maximum(special, 0)), tokens.values),
            tf.where(
                is_unknown,
                tf.gather(words.begin, word),
                tf.gather(words.byte_begin, byte_start + tf.cast(starts.values, tf.int64)),
            ),
            tf.where(is_unknown, tf.gather(words.end, word), tf.gather(words.byte_end, last_byte)),
        )
        rows_splits = tf.RaggedTensor.from_value_rowids(rows, rows, tf.size(texts, tf.int64), validate=False).row_splits
        return tuple(
            tf.RaggedTensor.from_row_splits(tf.cast(value, tf.int32), rows_splits, validate=False) for value in values
        )


def _regular_text(excluded: Sequence[str], special_tokens: Sequence[str]) -> str:
    """A regular expression for valid UTF-8 without special tokens and without excluded characters or ranges ("a-z").

    Texts with "[" and a special token's second character do not match.
    """
    without = "".join("-".join(f"\\x{{{ord(word):x}}}" for word in entry.split("-")) for entry in excluded)
    if not special_tokens:
        return f"[^{without}]*"
    seconds = "".join(sorted({token[1] for token in special_tokens}))
    return rf"(?:[^{without}\[]|\[+[^{without}\[{seconds}])*\[*"


def _components(tokens: tuple[tf.RaggedTensor, ...]) -> tuple[tf.Tensor, ...]:
    """Returns row splits and values: `tf.cond` requires plain tensors with equal types from both branches."""
    return tokens[0].row_splits, *(token.values for token in tokens)


def _absent_code_point(tokens: Sequence[str]) -> int:
    """The first among `1 + len(SPECIAL_TOKENS)` consecutive private-use characters outside all tokens."""
    used = {ord(character) for token in tokens for character in token if ord(character) >= _FIRST_PRIVATE_USE}
    absent = _FIRST_PRIVATE_USE
    while any(code in used for code in range(absent, absent + len(SPECIAL_TOKENS) + 1)):
        absent += 1
    return absent
