"""Smaller WordPiece vocabularies that tokenize a user's texts as before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pocketbert.errors import UserError
from pocketbert.tokenizers.vocabulary import SPECIAL_TOKENS

_CONTINUATION = "##"


def required_ids(tokens: Sequence[str]) -> list[int]:
    """Ids that every trimmed vocabulary keeps: special tokens, and single characters with or without `##`.

    With its characters, a vocabulary can still write every word that it could write before.
    """
    return [
        position
        for position, token in enumerate(tokens)
        if token in SPECIAL_TOKENS or len(token.removeprefix(_CONTINUATION)) == 1
    ]


def listed_ids(listed: Iterable[str], tokens: Sequence[str], source: str) -> list[int]:
    """Ids of the tokens in a user's list.

    Raises:
      UserError: a token is not in the vocabulary; names the first ones.
    """
    ids = {token: position for position, token in enumerate(tokens)}
    unknown = [token for token in listed if token not in ids]
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise UserError(
            f"{source} must list tokens of the vocabulary; received {', '.join(map(repr, unknown[:5]))}{more}; remove "
            "them"
        )
    return [ids[token] for token in listed]


def chosen_ids(
    counts: Sequence[int], required: Collection[int], *, keep_top: int | None, min_count: int | None
) -> list[int]:
    """Ids of a trimmed vocabulary, in the order of the whole one.

    Removing other tokens does not change the tokens of a text: WordPiece takes the longest token at each position, and
    that token is still the longest. A word that is unknown as a whole can become known.

    Args:
      counts: occurrences of each token in the user's texts.
      required: ids to keep in any case.
      keep_top: number of tokens to keep, `required` included; the most frequent ones, then the first ones.
      min_count: keep the tokens with at least as many occurrences, and `required`.

    Raises:
      UserError: `keep_top` is smaller than `required` or larger than the vocabulary.
    """
    kept = set(required)
    if keep_top is None:
        kept |= {position for position, count in enumerate(counts) if count >= (min_count or 1)}
        return sorted(kept)
    if not len(kept) <= keep_top <= len(counts):
        raise UserError(
            f"keep_top must be {len(kept)} (special tokens, single characters and the tokens in --keep) to "
            f"{len(counts)} (the whole vocabulary); received {keep_top}"
        )
    others = sorted(set(range(len(counts))) - kept, key=lambda position: (-counts[position], position))
    return sorted([*kept, *others[: keep_top - len(kept)]])
