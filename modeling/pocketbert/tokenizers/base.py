"""Base class for all tokenizers: the call, its arguments and text forms."""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from pocketbert.errors import UserError, raise_if_any
from pocketbert.tokenizers.framing import packing
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokens, check_strings
from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

Texts: TypeAlias = "str | bytes | Sequence[str] | Sequence[bytes] | np.ndarray | tf.Tensor"


class TokensWithOffsets(NamedTuple):
    """Tokens with offsets: three ragged tensors with the same shape `[batch, tokens]`.

    Attributes:
      ids: int32 ids.
      starts: int32, offset of a token's first code point in the text.
      ends: int32, offset after its last code point.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Tokenizer(tf.Module, abc.ABC):
    """Turns texts into model inputs. The subclasses are `WordPieceTokenizer`, `ByteBPETokenizer`, `UnigramTokenizer`.

    You can pass texts as a list of strings, a string tensor or array of rank 1, or a single string (a batch with one
    text). Any text is valid.

    Args:
      name: the module's name.
      special_tokens_in_text: meaning of a literal special token in a text; see the subclasses.
    Attributes:
      vocabulary: files and options; `open_tokenizer` makes an equal tokenizer from them.
      frame: special tokens around texts.
      special_tokens_in_text: see the argument.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: the special tokens' ids.
    """

    vocabulary: Vocabulary
    frame: Frame
    vocab_size: int
    pad_token_id: int
    unk_token_id: int
    cls_token_id: int
    sep_token_id: int
    mask_token_id: int

    def __init__(self, name: str, special_tokens_in_text: SpecialTokensInText) -> None:
        super().__init__(name=name)
        if special_tokens_in_text not in ("token", "text"):
            raise UserError(
                f"special_tokens_in_text must be 'token' or 'text'; received {special_tokens_in_text!r}; "
                "choose 'text' for untrusted text"
            )
        self.special_tokens_in_text = special_tokens_in_text

    def __call__(
        self, texts: Texts, pairs: Texts | None = None, max_length: int = 128, pad_to: int | None = None
    ) -> dict[str, tf.Tensor]:
        """Makes model inputs: `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`, with the family's special tokens.

        Args:
          texts: the texts.
          pairs: the same number of second texts.
          max_length: maximum sequence length, including special tokens. Longer texts are truncated at the end; for
            pairs, the longer text first (transformers' `truncation="longest_first"`). For a tokenizer with another
            `truncation` see `pocketbert_runtime.tokenizers.truncation`.
          pad_to: length of the result, at least `max_length`; by default, the longest row's length.
        Returns:
          int32 `[batch, length]`: `input_word_ids`, `input_mask` (1 = token), `input_type_ids` (1 = second text; 0 for
            families with one segment).
        Raises:
          UserError: texts are not strings, the numbers of texts and pairs differ, or a length is invalid.
        """
        problems = self.frame.length_problems(pairs=pairs is not None, max_length=max_length, pad_to=pad_to)
        raise_if_any(problems, "tokenizer")
        strings = as_strings(texts, "texts")
        pair_strings = None
        if pairs is not None:
            pair_strings = as_strings(pairs, "pairs")
            if not strings.shape.is_compatible_with(pair_strings.shape):
                raise UserError(
                    f"each text must have a pair; received {strings.shape[0]} texts and {pair_strings.shape[0]} pairs; "
                    "pass the same number of both"
                )
        limits = tf.constant(max_length, tf.int32), tf.constant(pad_to or 0, tf.int32)
        if self.vocabulary.truncation == HEAD:
            inputs = self._encode(strings, pair_strings, *limits)
        else:
            inputs = self._encode_cut(strings, pair_strings, *limits)
        shape = [strings.shape[0], pad_to]
        return {name: tf.ensure_shape(tensor, shape) for name, tensor in inputs.items()}

    def tokenize(self, texts: Texts) -> tf.RaggedTensor:
        """Returns ids without special tokens, ragged int32 `[batch, tokens]`, without truncation."""
        return self._tokenize(as_strings(texts, "texts"))

    def tokenize_with_offsets(self, texts: Texts) -> TokensWithOffsets:
        """Returns ids without special tokens, with their offsets in code points."""
        return TokensWithOffsets(*self._tokenize_with_offsets(as_strings(texts, "texts")))

    def id_rows(self, texts: Texts) -> list[list[int]]:
        """See `TextTokenizer.id_rows`."""
        rows: list[list[int]] = self.tokenize(texts).to_list()
        return rows

    def tokens(self, texts: Texts) -> TextTokens:
        """See `TextTokenizer.tokens`."""
        tokens = self.tokenize_with_offsets(texts)
        ids, starts, ends = (part.values.numpy() for part in tokens)
        return TextTokens(ids, starts, ends, tokens.ids.row_splits.numpy())

    def _encode_cut(
        self, texts: tf.Tensor, pairs: tf.Tensor | None, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """`_encode` for another truncation than `head`."""
        pack = packing(self.frame, pairs=pairs is not None, truncation=self.vocabulary.truncation)
        with tf.device("CPU:0"):
            if pairs is None:
                return pack(self._tokenize(texts), max_length, pad_to)
            tf.debugging.assert_equal(tf.size(texts), tf.size(pairs), "each text must have a pair")
            return pack(self._tokenize(texts), self._tokenize(pairs), max_length, pad_to)

    @abc.abstractmethod
    def _encode(
        self, texts: tf.Tensor, pairs: tf.Tensor | None, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Model inputs; `pad_to` is 0 for the longest row."""

    @abc.abstractmethod
    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids."""

    @abc.abstractmethod
    def _tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Ids, starts and ends."""


def as_strings(texts: Any, name: str) -> tf.Tensor:
    """Converts texts to a string tensor `[batch]`; raises `UserError` for other types, or more than one dimension."""
    if isinstance(texts, str | bytes):
        texts = [texts]
    if not tf.is_tensor(texts):
        texts = _constant(texts, name)
    if texts.dtype != tf.string or texts.shape.rank not in (0, 1):
        raise UserError(
            f"{name} must be a list of strings or a string tensor of rank 1; received {texts.dtype.name} with shape "
            f"{texts.shape}; flatten it"
        )
    return texts if texts.shape.rank == 1 else texts[tf.newaxis]


def _constant(texts: Any, name: str) -> tf.Tensor:
    rows = list(texts)
    check_strings(rows, name, (str, bytes))
    try:
        return tf.constant(rows, tf.string, shape=[len(rows)])
    except ValueError:
        # Lone surrogates have no UTF-8. One replacement character for each keeps the offsets correct.
        rows = [re.sub("[\ud800-\udfff]", "\ufffd", text) if isinstance(text, str) else text for text in rows]
        return tf.constant(rows, tf.string, shape=[len(rows)])
