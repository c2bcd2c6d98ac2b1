"""BERT's tokenizer in the graph, exact to the token and the character."""

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
    """Tokens and where they come from: three ragged tensors of the same shape `[batch, tokens]`.

    Attributes:
      ids: int32.
      starts: int32, offset of a token's first code point in the given text.
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
    token. Wherever an argument takes texts it takes a list of strings, a string tensor or array of rank 1, or one
    string, which is a batch of one.

    Args:
      vocab_path: one token a line, UTF-8, with [PAD], [UNK], [CLS], [SEP] and [MASK].
      lowercase: True for uncased vocabularies: lower-case, and drop accents unless `strip_accents` says otherwise.
      special_tokens_in_text: what a literal `[SEP]` or the like in a text is: "token", that special token, as
        transformers does by default; "text", ordinary characters, right for text from people that you do not trust
        (transformers' `split_special_tokens=True`).
      strip_accents: decompose letters and drop their accents; None follows `lowercase`.
      tokenize_chinese_chars: make each CJK ideograph a word of its own.

    Attributes:
      vocab_path: the file, as given.
      config: `lowercase`, `strip_accents` and `tokenize_chinese_chars`.
      lowercase: as given.
      special_tokens_in_text: as given.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.

    Raises:
      UserError: the vocabulary or an option is not usable; everything that is wrong is listed.
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
                f"special_tokens_in_text is 'token' or 'text'; received {special_tokens_in_text!r}; "
                "'text' is right for text that you do not trust"
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
        """Lets a tokenizer travel to another process, as its arguments; the vocabulary's file must be there too."""
        options = dataclasses.asdict(self.config) | {"special_tokens_in_text": self.special_tokens_in_text}
        return functools.partial(type(self), **options), (self.vocab_path,)

    def __call__(
        self, texts: Texts, pairs: Texts | None = None, max_length: int = 128, pad_to: int | None = None
    ) -> dict[str, tf.Tensor]:
        """A model's inputs: `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`.

        Args:
          texts: the texts.
          pairs: as many second texts.
          max_length: places for tokens and special tokens; what is over is cut off at the end, of pairs from the
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
            inputs = self._graph.encode(strings, *limits)
        else:
            pair_strings = _as_strings(pairs, "pairs")
            if not strings.shape.is_compatible_with(pair_strings.shape):
                raise UserError(
                    f"every text has its pair; received {strings.shape[0]} texts and {pair_strings.shape[0]} pairs; "
                    "pass as many of both"
                )
            inputs = self._graph.encode_pairs(strings, pair_strings, *limits)
        shape = [strings.shape[0], pad_to]
        return {name: tf.ensure_shape(tensor, shape) for name, tensor in inputs.items()}

    def tokenize(self, texts: Texts) -> tf.RaggedTensor:
        """Ids without special tokens, ragged int32 `[batch, tokens]`; nothing is cut off."""
        return self._graph.tokenize(_as_strings(texts, "texts"))

    def tokenize_with_offsets(self, texts: Texts) -> TokensWithOffsets:
        """Ids without special tokens, and the code points of the given text that each token stands for."""
        return TokensWithOffsets(*self._graph.tokenize_with_offsets(_as_strings(texts, "texts")))


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
