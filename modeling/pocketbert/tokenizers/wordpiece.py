"""BERT's tokenizer, built from TensorFlow operations."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from pocketbert.configs import TokenizerConfig
from pocketbert.errors import raise_if_any
from pocketbert.tokenizers.base import Tokenizer
from pocketbert.tokenizers.library import added_wordpiece
from pocketbert.tokenizers.wordpiece_core import WordPieceCore
from pocketbert.tokenizers.wordpiece_graph import WordPieceGraph, wordpiece_graph
from pocketbert_runtime.tokenizers.added_tokens import AddedToken, added_problems, appended
from pocketbert_runtime.tokenizers.base import SpecialTokensInText
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import CLS, MASK, PAD, SEP, UNK


class WordPieceTokenizer(Tokenizer):
    """WordPiece tokenizer with the results of transformers' `BertTokenizerFast`, built from TensorFlow operations.

    The same object works eagerly, in `tf.function` and in `tf.data`. Source: BERT (Devlin et al. 2019) and
    google-research/bert `tokenization.py`, as implemented in Hugging Face's `tokenizers`. The WordPiece core is
    tensorflow-text's FastWordpieceTokenizer (Song et al. 2021, https://arxiv.org/abs/2012.15524).

    Any text is valid. Control characters, U+0000 and U+FFFD are dropped. So are invalid UTF-8 bytes and lone
    surrogates; in offsets, they count as one code point each. A word with more than 100 characters is one unknown
    token. You can pass texts as a list of strings, a string tensor or array of rank 1, or a single string (a batch with
    one text).

    With added tokens, Hugging Face's `tokenizers` does the work. Then it runs eagerly, in `tf.function` and in
    `tf.data`, but not in a SavedModel.

    Args:
      vocab_path: vocabulary in UTF-8 with one token per line, including [PAD], [UNK], [CLS], [SEP] and [MASK].
      lowercase: lower-case texts, for uncased vocabularies; this also strips accents by default.
      special_tokens_in_text: meaning of a literal `[SEP]` or similar in a text: "token" for the special token, as in
        transformers by default; "text" for ordinary characters, as with transformers' `split_special_tokens=True`. Use
        "text" for untrusted text.
      strip_accents: decompose letters and drop accents; None for the value of `lowercase`.
      tokenize_chinese_chars: make each CJK ideograph a separate word.
      added_tokens: tokens to find in a text before it is split.
      truncation: "head", "tail", "head-tail:N" or "only-second"; see `pocketbert_runtime.tokenizers.truncation`.
    Attributes:
      vocab_path: the vocabulary's path.
      config: `lowercase`, `strip_accents` and `tokenize_chinese_chars`.
      lowercase: see the argument.
      special_tokens_in_text: see the argument.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: the special tokens' ids.
    Raises:
      UserError: the vocabulary or an option is invalid. One error lists all problems.
    """

    def __init__(
        self,
        vocab_path: str | os.PathLike[str],
        lowercase: bool = True,
        special_tokens_in_text: SpecialTokensInText = "token",
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        added_tokens: Sequence[AddedToken] = (),
        truncation: str = HEAD,
    ) -> None:
        super().__init__("word_piece_tokenizer", special_tokens_in_text)
        self.vocab_path = Path(vocab_path)
        self.config = TokenizerConfig(
            lowercase=lowercase, strip_accents=strip_accents, tokenize_chinese_chars=tokenize_chinese_chars
        )
        self.lowercase = lowercase
        self.vocabulary = Vocabulary(
            path=self.vocab_path, config=self.config, added=tuple(added_tokens), truncation=truncation
        )
        tokens = self.vocabulary.base_tokens()
        raise_if_any(added_problems(added_tokens, tokens), str(vocab_path))
        ids = {token: position for position, token in enumerate(tokens)}
        self.vocab_size = len(tokens) + len(appended(added_tokens, len(tokens)))
        self.pad_token_id = ids[PAD]
        self.unk_token_id = ids[UNK]
        self.cls_token_id = ids[CLS]
        self.sep_token_id = ids[SEP]
        self.mask_token_id = ids[MASK]
        self._graph: WordPieceGraph | WordPieceCore
        if added_tokens:
            self._graph = WordPieceCore(added_wordpiece(self.vocabulary, special_tokens_in_text))
        else:
            self._graph = wordpiece_graph(tuple(tokens), self.config, special_tokens_in_text == "token")
        self.frame = self._graph.frame

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        """Pickles a tokenizer as its arguments. Other processes need the vocabulary file at the same path."""
        options = dataclasses.asdict(self.config) | {
            "special_tokens_in_text": self.special_tokens_in_text,
            "added_tokens": self.vocabulary.added,
            "truncation": self.vocabulary.truncation,
        }
        return functools.partial(type(self), **options), (self.vocab_path,)

    def _encode(
        self, texts: tf.Tensor, pairs: tf.Tensor | None, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        if pairs is None:
            return self._graph.encode(texts, max_length, pad_to)
        return self._graph.encode_pairs(texts, pairs, max_length, pad_to)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._graph.tokenize(texts)

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        return self._graph.tokenize_with_offsets(texts)


def open_vocabulary(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText) -> WordPieceTokenizer:
    """Makes a vocabulary's tokenizer; raises `UserError` if the file is invalid."""
    return WordPieceTokenizer(
        vocabulary.path,
        special_tokens_in_text=special_tokens_in_text,
        added_tokens=vocabulary.added,
        truncation=vocabulary.truncation,
        **dataclasses.asdict(vocabulary.options),
    )


def write_kept(vocabulary: Vocabulary, kept_ids: Sequence[int], paths: Sequence[Path]) -> None:
    """Writes the file with some of a vocabulary's tokens, by ascending id; see `trimming.write_trimmed`."""
    tokens = vocabulary.base_tokens()
    lines = (tokens[position] for position in kept_ids if position < len(tokens))
    paths[0].write_text("".join(f"{token}\n" for token in lines), encoding="utf-8")
