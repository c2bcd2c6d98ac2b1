"""Makes tokenizers from vocabularies."""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType

from pocketbert.tokenizers.base import Tokenizer
from pocketbert_runtime.tokenizer_config import TokenizerKind
from pocketbert_runtime.tokenizers.base import SpecialTokensInText
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def with_truncation(tokenizer: Tokenizer, truncation: str) -> Tokenizer:
    """Returns a tokenizer with another truncation; the same object if it does not change."""
    vocabulary = dataclasses.replace(tokenizer.vocabulary, truncation=truncation)
    same = vocabulary.truncation == tokenizer.vocabulary.truncation
    return tokenizer if same else open_tokenizer(vocabulary, tokenizer.special_tokens_in_text)


def open_tokenizer(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> Tokenizer:
    """Makes a vocabulary's tokenizer; raises `UserError` if a file is invalid."""
    return kind_module(vocabulary.kind).open_vocabulary(vocabulary, special_tokens_in_text)


def kind_module(kind: TokenizerKind) -> ModuleType:
    """Returns a kind's module in this package: its tokenizer, `open_vocabulary` and `write_kept`."""
    return importlib.import_module(f"pocketbert.tokenizers.{kind}")
