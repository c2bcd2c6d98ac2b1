"""Makes tokenizers from vocabularies."""

from __future__ import annotations

from pocketbert_runtime.tokenizers.added_wordpiece import AddedWordPiece
from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE
from pocketbert_runtime.tokenizers.unigram import Unigram
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import WordPiece


def open_tokenizer(vocabulary: Vocabulary) -> TextTokenizer:
    """Makes a vocabulary's tokenizer; raises a `UserError` for an invalid file or a missing package."""
    if vocabulary.kind == "byte_bpe":
        return ByteBPE(vocabulary)
    if vocabulary.kind == "unigram":
        return Unigram(vocabulary)
    return AddedWordPiece(vocabulary) if vocabulary.added else WordPiece(vocabulary)
