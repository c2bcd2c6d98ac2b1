"""Tokenizer kinds, and the configuration for WordPiece."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeAlias

from pocketbert_runtime.errors import UserError, raise_if_any

# A name in `TOKENIZER_KINDS`. Each row there has a file in `tokenizers/kinds`.
TokenizerKind: TypeAlias = str
TOKENIZER_KINDS: tuple[TokenizerKind, ...] = ("wordpiece", "byte_bpe", "unigram")
# The kind with layouts.
UNIGRAM_KIND: TokenizerKind = "unigram"
# Bundles and records that name no kind have this one.
UNNAMED_KIND: TokenizerKind = "wordpiece"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """A WordPiece tokenizer's normalization, in tokenizer_config.json's terms.

    Attributes:
      lowercase: lower-case all letters.
      strip_accents: decompose letters and drop their accents; None takes the value of `lowercase`.
      tokenize_chinese_chars: make each CJK ideograph a separate word.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def __post_init__(self) -> None:
        if self.strip_accents is None:
            object.__setattr__(self, "strip_accents", self.lowercase)
        problems = [
            f"{field.name} must be true or false; received {getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if not isinstance(getattr(self, field.name), bool)
        ]
        raise_if_any(problems, "TokenizerConfig")

    def require_default(self, subject: str, remedy: str) -> None:
        """Raises `UserError` unless all other fields are at their defaults, for formats that store only `lowercase`."""
        if self != TokenizerConfig(lowercase=self.lowercase):
            raise UserError(
                f"{subject} needs a tokenizer with strip_accents={self.lowercase} and tokenize_chinese_chars=True; "
                f"received {self.strip_accents} and {self.tokenize_chinese_chars}; {remedy}"
            )
