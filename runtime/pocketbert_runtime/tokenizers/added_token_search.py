"""Finds added tokens before a text is normalized and split, by the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizers.added_tokens import FLAGS, AddedToken
from pocketbert_runtime.tokenizers.extras import TOKENIZERS, needed


class SplitPart(NamedTuple):
    """A part of a text.

    Attributes:
      token: the added token; None for text between added tokens.
      text: the text to tokenize; empty for an added token.
      origins: offsets in the original text, per character in `text` and its end; for an added token its start and end.
      has_space: whether `text` ends with a space before an added token from normalized text.
    """

    token: AddedToken | None
    text: str
    origins: Sequence[int]
    has_space: bool = False


def add_to_core(core: Any, tokens: Sequence[AddedToken], *, special: bool) -> None:
    """Adds tokens to a tokenizer from the library `tokenizers`.

    Args:
      core: the tokenizer.
      tokens: all tokens to find.
      special: whether special tokens in a text are tokens, or ordinary text.
    """
    with needed("a search for added tokens", TOKENIZERS):
        from tokenizers import AddedToken as CoreToken

    core.encode_special_tokens = not special
    for normalized in (False, True):
        strings = [
            (core.normalizer.normalize_str(token.content) if normalized and core.normalizer else token.content, token)
            for token in tokens
            if token.normalized == normalized
        ]
        _check_strings(strings)
    core.add_tokens(
        [CoreToken(token.content, **{flag: getattr(token, flag) for flag in FLAGS}) for token in by_id(tokens, core)]
    )


def by_id(tokens: Sequence[AddedToken], core: Any) -> list[AddedToken]:
    """Sorts tokens so that `core` gives new ones their ids."""
    size = core.get_vocab_size(with_added_tokens=False)
    in_table = [token for token in tokens if token.id < size]
    return [*in_table, *sorted((token for token in tokens if token.id >= size), key=lambda token: token.id)]


def _check_strings(tokens: Sequence[tuple[str, AddedToken]]) -> None:
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


class AddedTokenSplitter:
    """Splits texts at added tokens, in the text and then in its normalized parts, as `tokenizers` does.

    Args:
      tokens: the tokens to find.
      normalize: text → normalized text, and for each of its characters and its end the original character's offset.
      special: whether special tokens in a text are tokens, or ordinary text.
    """

    def __init__(
        self, tokens: Sequence[AddedToken], normalize: Callable[[str], tuple[str, Sequence[int]]], *, special: bool
    ) -> None:
        self._normalize = normalize
        raw = [(token.content, token) for token in tokens if not token.normalized]
        normalized = [(normalize(token.content)[0], token) for token in tokens if token.normalized]
        self._raw, self._normalized = _Finder(raw, special=special), _Finder(normalized, special=special)

    def split(self, text: str) -> list[SplitPart]:
        """Splits a text into parts in order, none of them empty."""
        return [part for piece in self._raw.split(text, range(len(text) + 1)) for part in self._in_normalized(piece)]

    def _in_normalized(self, piece: SplitPart) -> Iterator[SplitPart]:
        if piece.token is not None or not self._normalized.tokens:
            yield piece
            return
        normalized, origins = self._normalize(piece.text)
        parts = self._normalized.split(normalized, [piece.origins[origin] for origin in origins])
        if not any(part.token for part in parts):
            # The tokenizer gets the text as it is.
            yield piece
            return
        for part in parts:
            yield part._replace(has_space=part is not parts[-1] and part.text.endswith(" "))


class _Finder:
    """Finds strings by the rules in `tokenizers`: the longest one at the leftmost position."""

    def __init__(self, tokens: Sequence[tuple[str, AddedToken]], *, special: bool) -> None:
        with needed("a search for added tokens", TOKENIZERS):
            from tokenizers import AddedToken as CoreToken
            from tokenizers import Tokenizer
            from tokenizers.models import WordLevel

        _check_strings(tokens)
        self.tokens: dict[str, AddedToken] = {}
        for content, token in tokens:
            self.tokens.setdefault(content, token)
        # One model token stands for all text between.
        between = "\n".join(["between", *self.tokens])
        self._core = Tokenizer(WordLevel({between: 0}, unk_token=between))
        self._core.encode_special_tokens = not special
        flags = ("lstrip", "rstrip", "single_word", "special")
        self._core.add_tokens(
            [
                CoreToken(content, normalized=False, **{flag: getattr(token, flag) for flag in flags})
                for content, token in self.tokens.items()
            ]
        )
        self._found = [None, *self.tokens.values()]

    def split(self, text: str, origins: Sequence[int]) -> list[SplitPart]:
        encoded = self._core.encode(text, add_special_tokens=False)
        parts = []
        for index, (start, end) in zip(encoded.ids, encoded.offsets, strict=True):
            if index:
                start, end = _without_space(text, start, end)
                parts.append(SplitPart(self._found[index], "", (origins[start], origins[end])))
            else:
                parts.append(SplitPart(None, text[start:end], origins[start : end + 1]))
        return parts


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """An added token's offsets without its white space."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
