"""Makes the tokenizer that a vocabulary describes."""

from __future__ import annotations

from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import WordPiece


def open_tokenizer(vocabulary: Vocabulary) -> TextTokenizer:
    """Makes the tokenizer of a vocabulary.

    Raises:
      UserError: a file is invalid, or the runtime has no such tokenizer.
    """
    remedy = "run the bundle with pocketbert.Bundle"
    vocabulary.require_wordpiece("pocketbert_runtime")
    vocabulary.require_no_added("a vocabulary of pocketbert_runtime", remedy)
    return WordPiece(vocabulary)
