"""RoBERTa's tokenizer in plain Python: byte-level BPE with the results of Hugging Face's `tokenizers`."""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pocketbert_runtime.tokenizers.added_token_search import (
    WHITE,
    AddedTokenSplitter,
    SplitPart,
    span_without_space,
    unchanged,
)
from pocketbert_runtime.tokenizers.added_tokens import found_in_text
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokenizer, Tokens, without_surrogates
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_characters
from pocketbert_runtime.tokenizers.byte_layouts import BYTE_LAYOUTS
from pocketbert_runtime.tokenizers.composition import composed
from pocketbert_runtime.tokenizers.unicode_categories import category
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_WORDS_CACHED = 1 << 14
# The cache must not keep words of any length.
_LONGEST_CACHED = 100

# GPT-2's expression, on the classes of the characters: a, 0, space, line feed and full stop for letters, numbers,
# spaces, other white space and the rest; apostrophes and the letters of contractions stand for themselves.
_WORD = re.compile(r"'(?:[stmd]|re|ve|ll)| ?[a-z]+| ?0+| ?[.']+|[ \n]+(?![^ \n])|[ \n]+")
_AS_THEY_ARE = " 'adelmrstv"
_WHITE = re.compile(f"[{WHITE}]")


class _Subword(NamedTuple):
    """A subword in a word.

    Attributes:
      id: its id.
      start: its first character in the word.
      end: the character after its last one.
      leading: spaces at its start.
      trailing: spaces at its end.
    """

    id: int
    start: int
    end: int
    leading: int
    trailing: int


class ByteBPE(TextTokenizer):
    """Byte-level BPE with the results of transformers' `RobertaTokenizerFast`.

    Source: RoBERTa (Liu et al. 2019) and GPT-2 (Radford et al. 2019), as implemented in Hugging Face's `tokenizers`
    with `trim_offsets=True`. Inputs are `<s> text </s>` or `<s> text </s></s> pair </s>`; all segments are 0. In
    ModernBERT's layout, texts are brought into form C, and inputs are `[CLS] text [SEP]` or `[CLS] text [SEP] pair
    [SEP]`.

    Any text is valid, and no token is unknown: a vocabulary has all 256 bytes. Spans exclude the white space before a
    token; a token with spaces only has an empty span. A token within a character spans the character. Lone surrogates
    are U+FFFD, one code point each.

    Args:
      vocabulary: files and options.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where `<mask>` also takes the white space before it; "text" for ordinary characters, as
        with transformers' `split_special_tokens=True`.
    Raises:
      UserError: a file is invalid, or the merges contradict the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> None:
        layout = BYTE_LAYOUTS[vocabulary.layout]
        super().__init__(vocabulary, layout.frame)
        self._normalize = composed if layout.composes else unchanged
        self._ranks = {pair: rank for rank, pair in enumerate(vocabulary.byte_bpe.merges)}
        self._cached = functools.lru_cache(maxsize=_WORDS_CACHED)(self._split)
        in_text = found_in_text(vocabulary.rules, self.ids, vocabulary.added)
        self._splitter = AddedTokenSplitter(in_text, self._normalize, special=special_tokens_in_text == "token")

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        rows = []
        for text in without_surrogates(texts):
            ids: list[int] = []
            for part in self._splitter.split(text):
                if part.token is None:
                    text = self._prefixed(self._normalize(part.text).text)
                    ids += [subword.id for word in self._words(text) for subword in word]
                else:
                    ids.append(part.token.id)
            rows.append(ids)
        return rows

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        rows = []
        for text in without_surrogates(texts):
            tokens = [
                token
                for number, part in enumerate(self._splitter.split(text))
                for token in self._part_tokens(part, is_first=not number)
            ]
            ids, starts, ends = zip(*tokens, strict=True) if tokens else ((), (), ())
            rows.append(Tokens(ids, starts, ends))
        return rows

    def _part_tokens(self, part: SplitPart, *, is_first: bool) -> Iterator[tuple[int, int, int]]:
        """Yields each token's id, start and end."""
        # With a prefix, the first token keeps a single space, as in `tokenizers`.
        keeps_space = self.vocabulary.add_prefix_space and is_first
        if part.token is not None:
            start, end = span_without_space(part)
            yield part.token.id, 0 if keeps_space and start == 1 else start, end
            return
        normalized, starts, ends = self._normalize(part.text)
        text = self._prefixed(normalized)
        # The added space belongs to the first character.
        added, behind = len(text) - len(normalized), 0
        for word in self._words(text):
            for subword in word:
                start = part.starts[starts[max(behind + subword.start - added, 0)]]
                end = part.ends[ends[max(behind + subword.end - 1 - added, 0)] - 1]
                if not (keeps_space and start == 0 and subword.leading == 1):
                    start = min(start + subword.leading, end)
                yield subword.id, start, max(end - subword.trailing, start)
            behind += word[-1].end

    def _prefixed(self, text: str) -> str:
        return f" {text}" if self.vocabulary.add_prefix_space and not text.startswith(" ") else text

    def _words(self, text: str) -> Iterator[tuple[_Subword, ...]]:
        """Splits a text at the ends of words; yields the subwords of each."""
        for match in _WORD.finditer(text.translate(_CLASSES)):
            start, end = match.span()
            split = self._cached if end - start <= _LONGEST_CACHED else self._split
            yield split(text[start:end])

    def _split(self, word: str) -> tuple[_Subword, ...]:
        """Splits a word into subwords."""
        characters = [number for number, character in enumerate(word) for _ in character.encode()]
        bytes_of_word = [byte_characters()[byte] for byte in word.encode()]
        subwords, behind = [], 0
        for symbol in merged(bytes_of_word, self._ranks):
            first, last = characters[behind], characters[behind + len(symbol) - 1]
            behind += len(symbol)
            leading, trailing = len(symbol) - len(symbol.lstrip(_SPACE)), len(symbol) - len(symbol.rstrip(_SPACE))
            subwords.append(_Subword(self.ids[symbol], first, last + 1, leading, trailing))
        return tuple(subwords)


_SPACE = byte_characters()[0x20]


def merged(symbols: Sequence[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Merges neighbours until no pair has a rank: the lowest rank first, and the leftmost pair of that rank.

    Args:
      symbols: at least one symbol.
      ranks: pair → rank.
    """
    parts: list[str] = list(symbols)
    count = len(parts)
    following, before = list(range(1, count + 1)), list(range(-1, count - 1))
    # The result tells an outdated entry, as in `tokenizers`.
    heap = [
        (ranks[pair], position, "".join(pair))
        for position, pair in enumerate(zip(parts, parts[1:], strict=False))
        if pair in ranks
    ]
    heapq.heapify(heap)
    while heap:
        _, position, result = heapq.heappop(heap)
        right = following[position]
        if not parts[position] or right == count:
            continue
        pair = parts[position], parts[right]
        if pair not in ranks or "".join(pair) != result:
            continue
        parts[position], parts[right] = result, ""
        after = following[position] = following[right]
        if after < count:
            before[after] = position
        for left in (before[position], position):
            if left >= 0 and following[left] < count:
                pair = parts[left], parts[following[left]]
                if pair in ranks:
                    heapq.heappush(heap, (ranks[pair], left, "".join(pair)))
    return [part for part in parts if part]


class _Classes(dict[int, str]):
    """Code point → class in `_WORD`, determined when a text first contains it."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in _AS_THEY_ARE:
            result = character
        elif _WHITE.fullmatch(character):
            result = "\n"
        else:
            result = {"L": "a", "N": "0"}.get(category(code)[0], ".")
        self[code] = result
        return result


_CLASSES = _Classes()
