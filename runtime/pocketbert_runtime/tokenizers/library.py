"""Tokenizers from the library `tokenizers`: WordPiece with added tokens, and the base class for byte-level BPE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pocketbert_runtime.tokenizers.added_token_search import add_to_core
from pocketbert_runtime.tokenizers.added_tokens import found_in_text
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokenizer, Tokens
from pocketbert_runtime.tokenizers.extras import TOKENIZERS, needed
from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import CLS, MAX_CHARACTERS_PER_WORD, PAD, SEP, UNK

_SURROGATES = re.compile("[\ud800-\udfff]")


class LibraryTokenizer(TextTokenizer):
    """A tokenizer by the library. It refuses lone surrogates, so they are U+FFFD."""

    _core: Any

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._core.encode_batch_fast(without_surrogates(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        rows = []
        for encoding in self._core.encode_batch(without_surrogates(texts), add_special_tokens=False):
            starts, ends = zip(*encoding.offsets, strict=True) if encoding.offsets else ((), ())
            rows.append(Tokens(encoding.ids, starts, ends))
        return rows


def without_surrogates(texts: Sequence[str]) -> list[str]:
    """Replaces lone surrogates by U+FFFD: they have no UTF-8."""
    return [_SURROGATES.sub("\ufffd", text) for text in texts]


class AddedWordPiece(LibraryTokenizer):
    """WordPiece for a vocabulary with added tokens.

    Args:
      vocabulary: files and options.
      special_tokens_in_text: whether special tokens in a text are tokens, or ordinary text.
    Raises:
      UserError: the vocabulary is invalid, or the library is not installed.
    """

    def __init__(self, vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> None:
        with needed("WordPiece with added tokens", TOKENIZERS):
            from tokenizers import Tokenizer
            from tokenizers.models import WordPiece
            from tokenizers.normalizers import BertNormalizer
            from tokenizers.pre_tokenizers import BertPreTokenizer

        super().__init__(vocabulary, lambda ids: Frame(first=ids[CLS], last=ids[SEP], pad=ids[PAD]))
        config = vocabulary.options
        self._core = Tokenizer(
            WordPiece(dict(self.ids), unk_token=UNK, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD)  # type: ignore[call-arg]
        )
        self._core.normalizer = BertNormalizer(
            clean_text=True,
            handle_chinese_chars=config.tokenize_chinese_chars,
            strip_accents=config.strip_accents,
            lowercase=config.lowercase,
        )
        self._core.pre_tokenizer = BertPreTokenizer()
        in_text = found_in_text("wordpiece", self.ids, vocabulary.added)
        add_to_core(self._core, in_text, special=special_tokens_in_text == "token")
