"""Finds added tokens before a text is normalized and split, with the results of the library `tokenizers`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.unicode_categories import is_word

# Unicode's White_Space, for a character class; Python's has U+001C to U+001F, too.
WHITE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WHITE = re.compile(f"[{WHITE}]*")


class SplitPart(NamedTuple):
    """A part of a text.

    Attributes:
      token: the added token; None for text between added tokens.
      text: the text to tokenize; for an added token the text that it takes, with white space by its flags.
      starts: offset in the original text for each character in `text`.
      ends: offsets after the original characters.
      has_space: whether `text` ends with a space before an added token from normalized text.
    """

    token: AddedToken | None
    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    has_space: bool = False


class Normalized(NamedTuple):
    """A normalized text.

    Attributes:
      text: the text.
      starts: each character's first offset in the text before.
      ends: the offsets after.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


def check_strings(tokens: Sequence[tuple[str, AddedToken]]) -> None:
    """Refuses (string, token) pairs that break `tokenizers`: two that can claim one space, and empty strings."""
    if nothing := [token.content for string, token in tokens if not string]:
        raise UserError(
            f"an added token must not be normalized away; received {nothing[0]!r}; set its flag normalized to false"
        )
    takes = [token.content for _, token in tokens if token.rstrip]
    starts = [token.content for string, token in tokens if string[:1].isspace()]
    if takes and starts:
        raise UserError(
            "an added token with rstrip and one that starts with white space must not be in one tokenizer; received "
            f"{takes[0]!r} and {starts[0]!r}; remove one of them, or its flag"
        )


def unchanged(text: str) -> Normalized:
    """The normalization of a tokenizer without one."""
    return Normalized(text, range(len(text)), range(1, len(text) + 1))


class AddedTokenSplitter:
    """Splits texts at added tokens, in the text and then in its normalized parts, as `tokenizers` does.

    Args:
      tokens: the tokens to find.
      normalize: normalizes a text.
      special: whether special tokens in a text are tokens, or ordinary text.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalize: Callable[[str], Normalized], *, special: bool) -> None:
        self._normalize = normalize
        raw = [(token.content, token) for token in tokens if not token.normalized]
        normalized = [(normalize(token.content).text, token) for token in tokens if token.normalized]
        self._raw, self._normalized = _Finder(raw, special=special), _Finder(normalized, special=special)

    def split(self, text: str) -> list[SplitPart]:
        """Splits a text into parts in order, none of them empty."""
        return [part for piece in self._raw.split(unchanged(text)) for part in self._in_normalized(piece)]

    def _in_normalized(self, piece: SplitPart) -> Iterator[SplitPart]:
        if piece.token is not None or not self._normalized.tokens:
            yield piece
            return
        text, starts, ends = self._normalize(piece.text)
        offset = piece.starts[0]
        moved = Normalized(text, [offset + start for start in starts], [offset + end for end in ends])
        parts = self._normalized.split(moved)
        if not any(part.token for part in parts):
            # The tokenizer gets the text as it is.
            yield piece
            return
        for part in parts:
            yield part._replace(has_space=part is not parts[-1] and part.text.endswith(" "))


class _Finder:
    """Finds strings by the rules in `tokenizers`: the longest one at the leftmost position."""

    def __init__(self, tokens: Sequence[tuple[str, AddedToken]], *, special: bool) -> None:
        check_strings(tokens)
        self._special = special
        self.tokens: dict[str, AddedToken] = {}
        for content, token in tokens:
            self.tokens.setdefault(content, token)
        longest_first = sorted(self.tokens, key=len, reverse=True)
        # Without tokens, the expression fits nowhere.
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def split(self, normalized: Normalized) -> list[SplitPart]:
        text, starts, ends = normalized
        parts: list[SplitPart] = []
        behind = 0
        for match in self._pattern.finditer(text):
            token = self.tokens[match[0]]
            start, end = match.span()
            if token.special and not self._special:
                continue
            if token.single_word and (is_word(text[start - 1 : start]) or is_word(text[end : end + 1])):
                continue
            if token.lstrip:
                while start > behind and _WHITE.fullmatch(text[start - 1]):
                    start -= 1
            if token.rstrip:
                end = _WHITE.match(text, end).end()  # type: ignore[union-attr]
            if behind < start:
                parts.append(SplitPart(None, text[behind:start], starts[behind:start], ends[behind:start]))
            parts.append(SplitPart(token, text[start:end], starts[start:end], ends[start:end]))
            behind = end
        if behind < len(text):
            parts.append(SplitPart(None, text[behind:], starts[behind:], ends[behind:]))
        return parts


def span_without_space(part: SplitPart) -> tuple[int, int]:
    """Returns an added token's offsets without its white space; for white space alone its end, twice."""
    last = len(part.text.rstrip()) or len(part.text)
    first = min(len(part.text) - len(part.text.lstrip()), last)
    return part.starts[first] if first < last else part.ends[last - 1], part.ends[last - 1]
