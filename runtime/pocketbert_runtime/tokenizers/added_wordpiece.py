"""WordPiece for vocabularies with added tokens, in plain Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pocketbert_runtime.tokenizers.added_token_search import AddedTokenSplitter, Normalized
from pocketbert_runtime.tokenizers.added_tokens import found_in_text
from pocketbert_runtime.tokenizers.base import Tokens
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, is_ideograph
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import ASCII_WORD, WordPiece, in_canonical_order


class AddedWordPiece(WordPiece):
    """WordPiece with the results of Hugging Face's `tokenizers` for added tokens.

    Args:
      vocabulary: files and options. Added tokens with the flag `normalized` are found in the normalized text.
    Raises:
      UserError: the vocabulary is invalid, or an added token contradicts it.
    """

    # The splitter finds special tokens, too, by the flags of the added ones.
    _special_token = re.compile(r"(?!)")
    _ascii_word = re.compile(ASCII_WORD)

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        in_text = found_in_text(vocabulary.rules, self.ids, vocabulary.added)
        self._splitter = AddedTokenSplitter(in_text, self._normalized_text, special=True)

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        return [[token for token, _, _ in self._tokens_in(text)] for text in texts]

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        rows = []
        for text in texts:
            tokens = list(self._tokens_in(text))
            ids, starts, ends = zip(*tokens, strict=True) if tokens else ((), (), ())
            rows.append(Tokens(ids, starts, ends))
        return rows

    def _tokens_in(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yields each token's id, start and end."""
        for part in self._splitter.split(text):
            if part.token is not None:
                yield part.token.id, part.starts[0], part.ends[-1]
                continue
            for word in self._words(part.text):
                ids, bounds = self._subwords_of(word.text)
                for token, first, behind in zip(ids, bounds, bounds[1:], strict=False):
                    yield token, part.starts[word.starts[first]], part.ends[word.ends[behind - 1] - 1]

    def _normalized_text(self, text: str) -> Normalized:
        """Normalizes a text: as `_words`, with spaces around ideographs."""
        characters: list[str] = []
        starts: list[int] = []
        spaced = self.vocabulary.options.tokenize_chinese_chars
        for part in in_canonical_order(self._parts(text)):
            if part.kind == DROPPED:
                continue
            result = f" {part.text} " if spaced and is_ideograph(ord(text[part.origin])) else part.text
            characters.append(result)
            starts += [part.origin] * len(result)
        return Normalized("".join(characters), starts, [start + 1 for start in starts])
