"""Added tokens, found before a text is normalized and split: their flags and rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules

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


def default_special(rules: TokenizerRules, content: str, token_id: int) -> AddedToken:
    """A special token with the default flags, if no file states others."""
    takes_space = rules.mask_takes_space and content == rules.special_names["mask_token"]
    return AddedToken(content=content, id=token_id, lstrip=takes_space, special=True)


def found_in_text(rules: TokenizerRules, ids: Mapping[str, int], added: Sequence[AddedToken]) -> list[AddedToken]:
    """All tokens to find in a text: special tokens, then the others.

    Args:
      rules: the tokenizer's rules.
      ids: token → id, with the special tokens unless they are added.
      added: the added tokens; they may give special tokens other flags.
    """
    tokens = {token: default_special(rules, token, ids[token]) for token in rules.special_tokens if token in ids}
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


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_MAX_LISTED]))
    return shown if len(items) <= _MAX_LISTED else f"{shown} and {len(items) - _MAX_LISTED} more"
