"""BERT's tokenizer in the graph, exact to the piece and the character."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from pocketbert.errors import UserError, raise_if_any
from pocketbert.tokenizers.normalizer_model import normalizer_model
from pocketbert.tokenizers.packing import pack
from pocketbert.tokenizers.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, read_vocabulary
from pocketbert.tokenizers.words import MAX_CHARACTERS_PER_WORD, WordSplitter

Texts: TypeAlias = "str | bytes | Sequence[str] | Sequence[bytes] | np.ndarray | tf.Tensor"

# Private use begins here. The clean-up drops private characters, so no text brings one to the vocabulary.
_FIRST_PRIVATE_USE = 0xE000
_MAX_BYTES_PER_CHARACTER = 4
_PARTS = min(4, os.cpu_count() or 1)


class TokensWithOffsets(NamedTuple):
    """Pieces and where they come from: three ragged tensors of the same shape `[batch, pieces]`.

    Attributes:
      ids: int32.
      starts: int32, offset of a piece's first code point in the given text.
      ends: int32, offset behind its last code point.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class WordPieceTokenizer(tf.Module):
    """Strings to ids as transformers' `BertTokenizerFast` does it, built of TensorFlow operations only.

    The same object works eagerly, inside `tf.function` and inside `tf.data`. Source: BERT (Devlin et al. 2019) and
    google-research/bert `tokenization.py`, in the reading of Hugging Face's `tokenizers`; the WordPiece core is
    tensorflow-text's FastWordpieceTokenizer (Song et al. 2021, https://arxiv.org/abs/2012.15524).

    A text may be anything: control characters, U+0000 and U+FFFD vanish; so do bytes that are not valid UTF-8 and
    lone surrogates, each counting as one code point in offsets; a word of more than 100 characters is one unknown
    piece. Wherever an argument takes texts it takes a list of strings, a string tensor or array of rank 1, or one
    string, which is a batch of one.

    Args:
      vocab_path: one piece a line, UTF-8, with [PAD], [UNK], [CLS], [SEP] and [MASK].
      lowercase: True for uncased vocabularies: lower-case and drop accents.
      special_tokens_in_text: what a literal `[SEP]` or the like in a text is: "token", that special token, as
        transformers does by default; "text", ordinary characters, right for text from people that you do not trust
        (transformers' `split_special_tokens=True`).

    Attributes:
      vocab_path: the file, as given.
      lowercase: as given.
      special_tokens_in_text: as given.
      vocab_size: number of pieces.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.

    Raises:
      UserError: the vocabulary or an option is not usable; everything that is wrong is listed.
    """

    def __init__(
        self,
        vocab_path: str | os.PathLike[str],
        lowercase: bool = True,
        special_tokens_in_text: Literal["token", "text"] = "token",
    ) -> None:
        super().__init__(name="word_piece_tokenizer")
        if special_tokens_in_text not in ("token", "text"):
            raise UserError(
                f"special_tokens_in_text is 'token' or 'text'; received {special_tokens_in_text!r}; "
                "'text' is right for text that you do not trust"
            )
        self.vocab_path = Path(vocab_path)
        self.lowercase = lowercase
        self.special_tokens_in_text = special_tokens_in_text
        pieces = read_vocabulary(vocab_path)
        ids = {piece: position for position, piece in enumerate(pieces)}
        self.vocab_size = len(pieces)
        self.pad_token_id = ids[PAD]
        self.unk_token_id = ids[UNK]
        self.cls_token_id = ids[CLS]
        self.sep_token_id = ids[SEP]
        self.mask_token_id = ids[MASK]

        special_tokens = SPECIAL_TOKENS if special_tokens_in_text == "token" else ()
        absent = _absent_code_point(pieces)
        with tf.device("CPU:0"):
            self._special_ids = tf.constant([ids[token] for token in SPECIAL_TOKENS], tf.int32)
            self._splitter = WordSplitter(lowercase, special_tokens, absent)
            self._text_pieces = tf_text.FastWordpieceTokenizer(
                pieces, max_bytes_per_word=MAX_CHARACTERS_PER_WORD, token_out_type=tf.int32, unknown_token=UNK
            )
            model = normalizer_model(lowercase, frozenset("".join(pieces)), absent)
            self._normalizer = tf_text.FastBertNormalizer(
                model_buffer=tf.constant(np.frombuffer(model.buffer, np.uint8))
            )
            self._word_pieces = tf_text.FastWordpieceTokenizer(
                pieces,
                max_bytes_per_word=MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER,
                token_out_type=tf.int32,
                unknown_token=UNK,
                no_pretokenization=True,
            )
        excluded = ["\ud800-\uf8ff", "\U000f0000-\U0010ffff", *model.left_out]
        self._regular_text = _regular_text(excluded, special_tokens)
        # A "[" may begin a special token.
        self._simple_text = r"[\t\n\r -Z\\-~]*" if special_tokens else r"[\t\n\r -~]*"

        strings = tf.TensorSpec([None], tf.string)
        number = tf.TensorSpec([], tf.int32)
        self._tokenize = tf.function(self._tokenize_graph, input_signature=[strings])
        self._tokenize_with_offsets = tf.function(self._tokenize_with_offsets_graph, input_signature=[strings])
        self._encode = tf.function(self._encode_graph, input_signature=[strings, number, number])
        self._encode_pairs = tf.function(self._encode_pairs_graph, input_signature=[strings, strings, number, number])

    def __call__(
        self, texts: Texts, pairs: Texts | None = None, max_length: int = 128, pad_to: int | None = None
    ) -> dict[str, tf.Tensor]:
        """A model's inputs: `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`.

        Args:
          texts: the texts.
          pairs: as many second texts.
          max_length: places for pieces and special tokens; what is over is cut off at the end, of pairs from the
            longer one first (transformers' `truncation="longest_first"`).
          pad_to: length of the result, at least `max_length`; by default that of the batch's longest row.

        Returns:
          int32 `[batch, length]`: `input_word_ids`, `input_mask` (1 = token), `input_type_ids` (1 = second text).

        Raises:
          UserError: texts are not strings, counts of texts and pairs differ, or a length is not possible.
        """
        least = 2 if pairs is None else 3
        problems = []
        if max_length < least:
            problems.append(
                f"max_length has room for {least} special tokens; received {max_length}; pass at least {least}"
            )
        if pad_to is not None and pad_to < max_length:
            problems.append(
                f"pad_to is at least max_length; received pad_to={pad_to}, max_length={max_length}; "
                "pass max_length too to cut texts shorter"
            )
        raise_if_any(problems, "tokenizer")
        strings = _as_strings(texts, "texts")
        limits = tf.constant(max_length, tf.int32), tf.constant(pad_to or 0, tf.int32)
        if pairs is None:
            inputs = self._encode(strings, *limits)
        else:
            pair_strings = _as_strings(pairs, "pairs")
            if not strings.shape.is_compatible_with(pair_strings.shape):
                raise UserError(
                    f"every text has its pair; received {strings.shape[0]} texts and {pair_strings.shape[0]} pairs; "
                    "pass as many of both"
                )
            inputs = self._encode_pairs(strings, pair_strings, *limits)
        shape = [strings.shape[0], pad_to]
        return {name: tf.ensure_shape(tensor, shape) for name, tensor in inputs.items()}

    def tokenize(self, texts: Texts) -> tf.RaggedTensor:
        """Ids without special tokens, ragged int32 `[batch, pieces]`; nothing is cut off."""
        return self._tokenize(_as_strings(texts, "texts"))

    def tokenize_with_offsets(self, texts: Texts) -> TokensWithOffsets:
        """Ids without special tokens, and the code points of the given text that each piece stands for."""
        return TokensWithOffsets(*self._tokenize_with_offsets(_as_strings(texts, "texts")))

    def _tokenize_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Fast on all texts at once, then the long way for those few that need it."""
        with tf.device("CPU:0"):
            size = tf.size(texts)
            # Each part runs on a thread of its own: the operations inside use one.
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
        """Ids, and for which texts they are right."""
        ids, starts, ends = self._text_pieces.tokenize_with_offsets(self._normalizer.normalize(texts))
        is_regular = tf.strings.regex_full_match(texts, self._regular_text)
        # Here 100 bytes end a word, not characters.
        long = tf.where(ends.values - starts.values > MAX_CHARACTERS_PER_WORD)
        rows = tf.searchsorted(ids.row_splits, long[:, 0], side="right") - 1
        return ids, tf.tensor_scatter_nd_update(is_regular, rows[:, tf.newaxis], tf.zeros_like(rows, tf.bool))

    def _tokenize_with_offsets_graph(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        return self._tokens(texts)

    def _encode_graph(self, texts: tf.Tensor, max_length: tf.Tensor, pad_to: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            return self._pack(self._tokenize_graph(texts), None, max_length, pad_to)

    def _encode_pairs_graph(
        self, texts: tf.Tensor, pairs: tf.Tensor, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            tf.debugging.assert_equal(tf.size(texts), tf.size(pairs), "every text has its pair")
            both = self._tokenize_graph(tf.concat([texts, pairs], 0))
            return self._pack(both[: tf.size(texts)], both[tf.size(texts) :], max_length, pad_to)

    def _pack(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return pack(
            first,
            second,
            max_length,
            pad_to,
            cls_id=self.cls_token_id,
            sep_id=self.sep_token_id,
            pad_id=self.pad_token_id,
        )

    def _tokens(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Offsets of printable ASCII, where characters are bytes, from tensorflow-text; others the long way."""
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
            ids, starts, ends = (tf.RaggedTensor.from_row_splits(each, splits, validate=False) for each in values)
            return ids, starts, ends

    def _tokens_of_simple(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        if self.lowercase:
            texts = tf.strings.lower(texts)
        ids, starts, ends = self._text_pieces.tokenize_with_offsets(texts)
        return ids, tf.cast(starts, tf.int32), tf.cast(ends, tf.int32)

    def _tokens_of_any(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        words = self._splitter(texts)
        pieces, starts, ends = self._word_pieces.tokenize_with_offsets(words.strings)
        word = pieces.value_rowids()
        special = tf.gather(words.special, word)
        is_unknown = pieces.values == self.unk_token_id
        byte_start = tf.gather(words.byte_starts, word)
        last_byte = tf.maximum(byte_start + tf.cast(ends.values, tf.int64) - 1, 0)
        rows = tf.gather(words.rows, word)
        values = (
            tf.where(special >= 0, tf.gather(self._special_ids, tf.maximum(special, 0)), pieces.values),
            tf.where(
                is_unknown,
                tf.gather(words.begin, word),
                tf.gather(words.byte_begin, byte_start + tf.cast(starts.values, tf.int64)),
            ),
            tf.where(is_unknown, tf.gather(words.end, word), tf.gather(words.byte_end, last_byte)),
        )
        rows_splits = tf.RaggedTensor.from_value_rowids(rows, rows, tf.size(texts, tf.int64), validate=False).row_splits
        return tuple(
            tf.RaggedTensor.from_row_splits(tf.cast(each, tf.int32), rows_splits, validate=False) for each in values
        )


def _regular_text(excluded: Sequence[str], special_tokens: Sequence[str]) -> str:
    """Regular expression of texts that are valid UTF-8 and have nothing that could be a special token.

    Args:
      excluded: characters, or ranges of them ("a-z"), that the text does not have either.
      special_tokens: all begin with "["; a text with "[" before the second character of one does not match.
    """
    without = "".join("-".join(f"\\x{{{ord(each):x}}}" for each in entry.split("-")) for entry in excluded)
    if not special_tokens:
        return f"[^{without}]*"
    seconds = "".join(sorted({token[1] for token in special_tokens}))
    return rf"(?:[^{without}\[]|\[+[^{without}\[{seconds}])*\[*"


def _components(tokens: tuple[tf.RaggedTensor, ...]) -> tuple[tf.Tensor, ...]:
    """Row splits and values: `tf.cond` wants plain tensors of equal kind from both sides."""
    return tokens[0].row_splits, *(each.values for each in tokens)


def _absent_code_point(pieces: Sequence[str]) -> int:
    """The first of a run of private-use characters, one and one for each special token, that no piece contains."""
    used = {ord(character) for piece in pieces for character in piece if ord(character) >= _FIRST_PRIVATE_USE}
    absent = _FIRST_PRIVATE_USE
    while any(code in used for code in range(absent, absent + len(SPECIAL_TOKENS) + 1)):
        absent += 1
    return absent


def _as_strings(texts: Any, name: str) -> tf.Tensor:
    """`[batch]` string tensor, of whatever the caller has."""
    if isinstance(texts, str | bytes):
        texts = [texts]
    if not tf.is_tensor(texts):
        texts = _constant(texts, name)
    if texts.dtype != tf.string or texts.shape.rank not in (0, 1):
        raise UserError(
            f"{name} is a list of strings or a string tensor of rank 1; received {texts.dtype.name} of shape "
            f"{texts.shape}; flatten it, one text a row"
        )
    return texts if texts.shape.rank == 1 else texts[tf.newaxis]


def _constant(texts: Any, name: str) -> tf.Tensor:
    rows = list(texts)
    for row, text in enumerate(rows):
        if not isinstance(text, str | bytes):
            raise UserError(f"{name} is a list of strings; received {text!r} at index {row}; convert it to str")
    try:
        return tf.constant(rows, tf.string, shape=[len(rows)])
    except ValueError:
        # Lone surrogates have no UTF-8; one replacement character each keeps the offsets right.
        rows = [re.sub("[\ud800-\udfff]", "\ufffd", text) if isinstance(text, str) else text for text in rows]
        return tf.constant(rows, tf.string, shape=[len(rows)])
