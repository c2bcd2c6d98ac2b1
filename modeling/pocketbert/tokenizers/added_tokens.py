"""Added tokens: found before a text is normalized and split, as in Hugging Face's `tokenizers`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pocketbert.configs import TokenizerKind
from pocketbert.errors import UserError
from pocketbert.tokenizers.special_tokens import MASK, ROBERTA_SPECIAL_TOKENS
from pocketbert.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
_MAX_LISTED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token found whole in a text, in transformers' terms.

    Attributes:
      content: the token's text.
      id: its id, in the vocabulary or after the last.
      lstrip: whether it includes the white space before it.
      rstrip: whether it includes the white space after it.
      single_word: whether it must not touch other letters and digits.
      normalized: whether it is found in the normalized text, for example in lower case.
      special: whether `special_tokens_in_text="text"` makes it ordinary text.
    """

    content: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False


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


def special_tokens(kind: TokenizerKind) -> tuple[str, ...]:
    """The special tokens in every tokenizer of a kind."""
    return SPECIAL_TOKENS if kind == "wordpiece" else ROBERTA_SPECIAL_TOKENS


def default_special(kind: TokenizerKind, content: str, token_id: int) -> AddedToken:
    """A special token with the default flags, if no file states others."""
    return AddedToken(content=content, id=token_id, lstrip=content == MASK and kind != "wordpiece", special=True)


def found_in_text(kind: TokenizerKind, ids: Mapping[str, int], added: Sequence[AddedToken]) -> list[AddedToken]:
    """All tokens to find in a text: special tokens, then the others.

    Args:
      kind: the tokenizer.
      ids: token → id, with the special tokens.
      added: the added tokens; they may give special tokens other flags.
    """
    tokens = {token: default_special(kind, token, ids[token]) for token in special_tokens(kind)}
    tokens |= {token.content: token for token in added}
    # The sort is stable: if two tokens have one normalized form, the first one is found.
    return sorted(tokens.values(), key=lambda token: not token.special)


def appended(added: Sequence[AddedToken], size: int) -> list[str]:
    """The tokens after a vocabulary with `size` tokens, by id."""
    return [token.content for token in sorted(added, key=lambda token: token.id) if token.id >= size]


def added_problems(added: Sequence[AddedToken], tokens: Sequence[str]) -> list[str]:
    """Lists problems with added tokens."""
    ids = {token: position for position, token in enumerate(tokens)}
    problems = []
    contents = [token.content for token in added]
    if "" in contents:
        problems.append("added tokens must not be empty; received an empty one; remove it")
    if repeated := sorted({content for content in contents if contents.count(content) > 1} if added else ()):
        problems.append(f"added tokens must be unique; received again: {_some(repeated)}; remove the repetitions")
    moved = [f"{token.content!r} ({token.id})" for token in added if ids.get(token.content, token.id) != token.id]
    if moved:
        problems.append(
            f"an added token in the vocabulary must have its id there; received other ids for {_some(moved)}; take all "
            "tokenizer files from one model"
        )
    behind = sorted(token.id for token in added if token.content not in ids)
    if not problems and behind != list(range(len(tokens), len(tokens) + len(behind))):
        problems.append(
            f"the ids of added tokens must follow the vocabulary's, from {len(tokens)} on, each used once; received "
            f"{_some(behind)}; take all tokenizer files from one model"
        )
    return problems


def add_to_core(core: Any, tokens: Sequence[AddedToken], *, special: bool) -> None:
    """Adds tokens to a tokenizer from the library `tokenizers`.

    Args:
      core: the tokenizer.
      tokens: all tokens to find.
      special: whether special tokens in a text are tokens, or ordinary text.
    """
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


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_MAX_LISTED]))
    return shown if len(items) <= _MAX_LISTED else f"{shown} and {len(items) - _MAX_LISTED} more"
