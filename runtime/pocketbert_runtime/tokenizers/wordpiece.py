"""BERT's tokenizer in plain Python, with the results of Hugging Face's `tokenizers`.

Source: BERT (Devlin et al. 2019) and google-research/bert `tokenization.py`, as implemented in Hugging Face's
`tokenizers`. The tokenizer for training (`pocketbert.tokenizers.wordpiece`) has the same results, in a graph.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pocketbert_runtime.tokenizers.base import TextTokenizer, Tokens
from pocketbert_runtime.tokenizers.bert_characters import (
    DROPPED,
    ISOLATED,
    SPACE,
    WORD,
    NormalizedCode,
    normalized_codes,
)
from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import (
    CLS,
    MAX_CHARACTERS_PER_WORD,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
)

_WORDS_CACHED = 1 << 14

_SPECIAL = "|".join(map(re.escape, SPECIAL_TOKENS))
# Texts whose words the next expression finds: each symbol is a word, and only the case of a character may change.
_ASCII = re.compile(r"[\t\n\r -~]*")
ASCII_WORD = r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]"


class _Word(NamedTuple):
    """A word.

    Attributes:
      text: the normalized word.
      starts: each character's original offset.
      ends: the offset after each original character.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class _Part(NamedTuple):
    """A normalized character in a text, or a special token.

    Attributes:
      text: the character or the token.
      kind: see `NormalizedCode`.
      combining: see `NormalizedCode`.
      origin: the original character's offset.
      is_first: whether it is that character's first result.
    """

    text: str
    kind: int
    combining: int
    origin: int
    is_first: bool


class WordPiece(TextTokenizer):
    """A WordPiece tokenizer. A literal `[SEP]` or similar in a text is the special token.

    Any text is valid. Control characters, U+0000, U+FFFD and lone surrogates are dropped. A word with more than 100
    characters is one unknown token.

    Raises:
      UserError: the vocabulary is invalid. One error lists all problems.
    """

    _special_token = re.compile(_SPECIAL)
    _ascii_word = re.compile(f"{_SPECIAL}|{ASCII_WORD}")

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, lambda ids: Frame(first=ids[CLS], last=ids[SEP], pad=ids[PAD]))
        config = vocabulary.options
        self._lowercase, self._unknown = config.lowercase, self.ids[UNK]
        self._longest = max(map(len, self.ids))
        self._normalized = functools.lru_cache(maxsize=None)(
            lambda code: normalized_codes(
                code, config.lowercase, bool(config.strip_accents), config.tokenize_chinese_chars
            )
        )
        self._subwords = functools.lru_cache(maxsize=_WORDS_CACHED)(self._split)

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        return [[token for word in self._words(text) for token in self._subwords_of(word.text)[0]] for text in texts]

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        rows = []
        for text in texts:
            ids: list[int] = []
            starts: list[int] = []
            ends: list[int] = []
            for word in self._words(text):
                subwords, bounds = self._subwords_of(word.text)
                ids += subwords
                starts += [word.starts[start] for start in bounds[:-1]]
                ends += [word.ends[end - 1] for end in bounds[1:]]
            rows.append(Tokens(ids, starts, ends))
        return rows

    def _subwords_of(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns a word's subword ids, and their bounds: subword i has the characters `bounds[i]:bounds[i + 1]`.

        Each subword is the longest one in the vocabulary. If a part has none, the word is one unknown token.
        """
        # The cache must not keep words of any length.
        is_long = len(word) > MAX_CHARACTERS_PER_WORD
        return ((self._unknown,), (0, len(word))) if is_long else self._subwords(word)

    def _split(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        ids: list[int] = []
        bounds = [0]
        while bounds[-1] < len(word):
            start, prefix = bounds[-1], "##" if ids else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                token = self.ids.get(prefix + word[start:end])
                if token is not None:
                    ids.append(token)
                    bounds.append(end)
                    break
            else:
                return (self._unknown,), (0, len(word))
        return tuple(ids), tuple(bounds)

    def _words(self, text: str) -> Iterator[_Word]:
        """Returns a text's words and special tokens."""
        if not _ASCII.fullmatch(text):
            yield from self._words_of_any(text)
            return
        for match in self._ascii_word.finditer(text):
            start, end = match.span()
            word = match[0].lower() if self._lowercase and match[0] not in SPECIAL_TOKENS else match[0]
            yield _Word(word, range(start, end), range(start + 1, end + 1))

    def _words_of_any(self, text: str) -> Iterator[_Word]:
        parts = in_canonical_order(self._parts(text))
        previous = SPACE
        word, starts = "", list[int]()
        for part in parts:
            if part.kind == DROPPED:
                continue
            if word and (part.kind != WORD or previous != WORD):
                yield _Word(word, starts, [start + 1 for start in starts])
                word, starts = "", []
            if part.kind != SPACE:
                word += part.text
                starts.extend(range(part.origin, part.origin + len(part.text)))
            previous = part.kind
        if word:
            yield _Word(word, starts, [start + 1 for start in starts])

    def _parts(self, text: str) -> list[_Part]:
        parts, behind = [], 0
        special_tokens = {match.start(): match[0] for match in self._special_token.finditer(text)}
        for offset, character in enumerate(text):
            if offset < behind:
                continue
            if offset in special_tokens:
                parts.append(_Part(special_tokens[offset], ISOLATED, 0, offset, True))
                behind = offset + len(special_tokens[offset])
                continue
            results: Sequence[NormalizedCode] = self._normalized(ord(character))
            parts += [
                _Part(chr(result.code), result.kind, result.combining, offset, not number)
                for number, result in enumerate(results)
            ]
        return parts


def in_canonical_order(parts: list[_Part]) -> list[_Part]:
    """Sorts the marks between two starters by combining class, including marks to drop later.

    Origins are not sorted: `tokenizers` only counts where the sorted text begins a new character of the original text.
    """
    classes = [part.combining for part in parts]
    if not any(0 < after < before for before, after in zip(classes, classes[1:], strict=False)):
        return parts
    keys, run = [], 0
    for combining in classes:
        run += combining == 0
        keys.append((run, combining))
    origins = [part.origin for part in parts if part.is_first]
    ordered, rank = [], -1
    for position in sorted(range(len(parts)), key=keys.__getitem__):
        rank += parts[position].is_first
        ordered.append(parts[position]._replace(origin=origins[max(rank, 0)]))
    return ordered
