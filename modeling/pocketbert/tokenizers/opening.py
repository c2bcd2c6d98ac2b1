"""Makes tokenizers from vocabularies."""

from __future__ import annotations

import dataclasses

from pocketbert.tokenizers.base import Tokenizer
from pocketbert_runtime.tokenizers.base import SpecialTokensInText
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def with_truncation(tokenizer: Tokenizer, truncation: str) -> Tokenizer:
    """Returns a tokenizer with another truncation; the same object if it does not change."""
    vocabulary = dataclasses.replace(tokenizer.vocabulary, truncation=truncation)
    same = vocabulary.truncation == tokenizer.vocabulary.truncation
    return tokenizer if same else open_tokenizer(vocabulary, tokenizer.special_tokens_in_text)


def open_tokenizer(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> Tokenizer:
    """Makes a vocabulary's tokenizer; raises `UserError` if a file is invalid."""
    if vocabulary.kind == "byte_bpe":
        from pocketbert.tokenizers.byte_bpe import ByteBPETokenizer

        assert vocabulary.merges is not None
        return ByteBPETokenizer(
            vocabulary.path,
            vocabulary.merges,
            special_tokens_in_text,
            added_tokens=vocabulary.added,
            add_prefix_space=vocabulary.add_prefix_space,
            truncation=vocabulary.truncation,
        )
    if vocabulary.kind == "unigram":
        from pocketbert.tokenizers.unigram import UnigramTokenizer

        return UnigramTokenizer(
            vocabulary.path,
            special_tokens_in_text,
            added_tokens=vocabulary.added,
            keeps_space=vocabulary.keeps_space,
            truncation=vocabulary.truncation,
        )
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    options = dataclasses.asdict(vocabulary.options)
    return WordPieceTokenizer(
        vocabulary.path,
        special_tokens_in_text=special_tokens_in_text,
        added_tokens=vocabulary.added,
        truncation=vocabulary.truncation,
        **options,
    )
