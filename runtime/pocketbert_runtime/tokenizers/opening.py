"""Makes the tokenizer that a vocabulary describes."""

from __future__ import annotations

from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE
from pocketbert_runtime.tokenizers.library import AddedWordPiece
from pocketbert_runtime.tokenizers.unigram import Unigram
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import WordPiece


def open_tokenizer(vocabulary: Vocabulary) -> TextTokenizer:
    """Makes the tokenizer of a vocabulary.

    Raises:
      UserError: a file is invalid, or a package that the tokenizer needs is not installed.
    """
    if vocabulary.kind == "byte_bpe":
        return ByteBPE(vocabulary)
    if vocabulary.kind == "unigram":
        return Unigram(vocabulary)
    return AddedWordPiece(vocabulary) if vocabulary.added else WordPiece(vocabulary)
