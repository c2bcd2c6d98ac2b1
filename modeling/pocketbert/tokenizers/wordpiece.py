"""BERT's tokenizer, built from TensorFlow operations."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from pocketbert.configs import TokenizerConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.tokenizers.vocabulary import CLS, MASK, PAD, SEP, UNK, read_vocabulary
from pocketbert.tokenizers.wordpiece_graph import wordpiece_graph

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


class WordPieceTokenizer(tf.Module):
    """WordPiece tokenizer with the results of transformers' `BertTokenizerFast`, built from TensorFlow operations.

    The same object works eagerly, in `tf.function` and in `tf.data`. Source: BERT (Devlin et al. 2019) and
    google-research/bert `tokenization.py`, as implemented in Hugging Face's `tokenizers`. The WordPiece core is
    tensorflow-text's FastWordpieceTokenizer (Song et al. 2021, https://arxiv.org/abs/2012.15524).

    Any text is valid. Control characters, U+0000 and U+FFFD are dropped. So are invalid UTF-8 bytes and lone
    surrogates, which count as one code point each in offsets. A word with more than 100 characters is one unknown
    token. You can pass texts as a list of strings, a string tensor or array of rank 1, or a single string (a batch with
    one text).

    Args:
      vocab_path: vocabulary in UTF-8 with one token per line, including [PAD], [UNK], [CLS], [SEP] and [MASK].
      lowercase: lower-case texts, for uncased vocabularies; this also strips accents by default.
      special_tokens_in_text: meaning of a literal `[SEP]` or similar in a text: "token" for the special token, as in
        transformers by default; "text" for ordinary characters, as with transformers' `split_special_tokens=True`. Use
        "text" for untrusted text.
      strip_accents: decompose letters and drop accents; None for the value of `lowercase`.
      tokenize_chinese_chars: make each CJK ideograph a separate word.

    Attributes:
      vocab_path: path of the vocabulary.
      config: `lowercase`, `strip_accents` and `tokenize_chinese_chars`.
      lowercase: see the argument.
      special_tokens_in_text: see the argument.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.

    Raises:
      UserError: the vocabulary or an option is invalid. One error lists all problems.
    """

    def __init__(
        self,
        vocab_path: str | os.PathLike[str],
        lowercase: bool = True,
        special_tokens_in_text: Literal["token", "text"] = "token",
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> None:
        super().__init__(name="word_piece_tokenizer")
        if special_tokens_in_text not in ("token", "text"):
            raise UserError(
                f"special_tokens_in_text must be 'token' or 'text'; received {special_tokens_in_text!r}; "
                "choose 'text' for untrusted text"
            )
        self.vocab_path = Path(vocab_path)
        self.config = TokenizerConfig(
            lowercase=lowercase, strip_accents=strip_accents, tokenize_chinese_chars=tokenize_chinese_chars
        )
        self.lowercase = lowercase
        self.special_tokens_in_text = special_tokens_in_text
        tokens = read_vocabulary(vocab_path)
        ids = {token: position for position, token in enumerate(tokens)}
        self.vocab_size = len(tokens)
        self.pad_token_id = ids[PAD]
        self.unk_token_id = ids[UNK]
        self.cls_token_id = ids[CLS]
        self.sep_token_id = ids[SEP]
        self.mask_token_id = ids[MASK]
        self._graph = wordpiece_graph(tuple(tokens), self.config, special_tokens_in_text == "token")

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        """Pickles a tokenizer as its arguments. Other processes need the vocabulary file at the same path."""
        options = dataclasses.asdict(self.config) | {"special_tokens_in_text": self.special_tokens_in_text}
        return functools.partial(type(self), **options), (self.vocab_path,)

    def __call__(
        self, texts: Texts, pairs: Texts | None = None, max_length: int = 128, pad_to: int | None = None
    ) -> dict[str, tf.Tensor]:
        """Makes model inputs: `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`.

        Args:
          texts: the texts.
          pairs: the same number of second texts.
          max_length: maximum sequence length, including special tokens. Longer texts are truncated at the end; for
            pairs, the longer text first (transformers' `truncation="longest_first"`).
          pad_to: length of the result, at least `max_length`; by default, the length of the longest row.

        Returns:
          int32 `[batch, length]`: `input_word_ids`, `input_mask` (1 = token), `input_type_ids` (1 = second text).

        Raises:
          UserError: texts are not strings, the numbers of texts and pairs differ, or a length is invalid.
        """
        least = 2 if pairs is None else 3
        problems = []
        if max_length < least:
            problems.append(
                f"max_length must have room for {least} special tokens; received {max_length}; pass at least {least}"
            )
        if pad_to is not None and pad_to < max_length:
            problems.append(
                f"pad_to must be at least max_length; received pad_to={pad_to}, max_length={max_length}; "
                "pass max_length too, to truncate texts"
            )
        raise_if_any(problems, "tokenizer")
        strings = _as_strings(texts, "texts")
        limits = tf.constant(max_length, tf.int32), tf.constant(pad_to or 0, tf.int32)
        if pairs is None:
            inputs = self._graph.encode(strings, *limits)
        else:
            pair_strings = _as_strings(pairs, "pairs")
            if not strings.shape.is_compatible_with(pair_strings.shape):
                raise UserError(
                    f"each text must have a pair; received {strings.shape[0]} texts and {pair_strings.shape[0]} pairs; "
                    "pass the same number of both"
                )
            inputs = self._graph.encode_pairs(strings, pair_strings, *limits)
        shape = [strings.shape[0], pad_to]
        return {name: tf.ensure_shape(tensor, shape) for name, tensor in inputs.items()}

    def tokenize(self, texts: Texts) -> tf.RaggedTensor:
        """Returns ids without special tokens, ragged int32 `[batch, tokens]`, without truncation."""
        return self._graph.tokenize(_as_strings(texts, "texts"))

    def tokenize_with_offsets(self, texts: Texts) -> TokensWithOffsets:
        """Returns ids without special tokens, with their offsets in code points."""
        return TokensWithOffsets(*self._graph.tokenize_with_offsets(_as_strings(texts, "texts")))


def _as_strings(texts: Any, name: str) -> tf.Tensor:
    """Converts texts to a string tensor `[batch]`."""
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
    for row, text in enumerate(rows):
        if not isinstance(text, str | bytes):
            raise UserError(f"{name} must be a list of strings; received {text!r} at index {row}; convert it to str")
    try:
        return tf.constant(rows, tf.string, shape=[len(rows)])
    except ValueError:
        # Lone surrogates have no UTF-8. One replacement character for each keeps the offsets correct.
        rows = [re.sub("[\ud800-\udfff]", "\ufffd", text) if isinstance(text, str) else text for text in rows]
        return tf.constant(rows, tf.string, shape=[len(rows)])
