"""Makes tokenizers from vocabularies."""

from __future__ import annotations

from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def open_tokenizer(vocabulary: Vocabulary) -> TextTokenizer:
    """Makes a vocabulary's tokenizer; raises a `UserError` for an invalid file or a missing package."""
    return vocabulary.rules.open(vocabulary)
