"""Smaller vocabularies that tokenize a user's texts as before.

If a text's tokens are all kept, removing others does not change them:

- WordPiece takes the longest token at each position, and that token is still the longest.
- Byte-level BPE applies the same merges in the same order, if the tokens merged into a kept token are kept too.
- A unigram model's best path is still the best: every other path had a lower score already.

Words with unknown parts are an exception: with other tokens they may become known or be split elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.tokenizers.opening import kind_module
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_characters
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_SHOWN = 5


def required_ids(vocabulary: Vocabulary) -> list[int]:
    """Ids of special and added tokens, single characters and bytes; with them, a vocabulary can write every word.

    Tokens that decide on others without being in a text's ids are among them, too.
    """
    rules = vocabulary.rules
    required = {*rules.special_tokens, *(token.content for token in vocabulary.added), *rules.unseen(vocabulary)}
    if rules.tokens_are_bytes:
        required |= {*byte_characters()}
    return [
        position
        for position, token in enumerate(vocabulary.tokens())
        if token in required or (not rules.tokens_are_bytes and len(token.removeprefix(rules.continuation)) == 1)
    ]


def listed_ids(listed: Iterable[str], tokens: Sequence[str], source: str) -> list[int]:
    """Returns ids for a user's list of tokens; raises `UserError` with the first tokens outside the vocabulary."""
    ids = {token: position for position, token in enumerate(tokens)}
    unknown = [token for token in listed if token not in ids]
    if unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise UserError(
            f"{source} must list tokens of the vocabulary; received {', '.join(map(repr, unknown[:_SHOWN]))}{more}; "
            "remove them"
        )
    return [ids[token] for token in listed]


def merged_from(vocabulary: Vocabulary) -> dict[int, set[int]]:
    """Id → ids of all tokens merged into it, directly or not; empty without merges."""
    if vocabulary.merges is None:
        return {}
    files = vocabulary.byte_bpe
    ids = {token: position for position, token in enumerate(files.tokens)}
    parts: dict[int, set[int]] = {}
    for left, right in files.merges:
        parts.setdefault(ids[left + right], set()).update((ids[left], ids[right]))
    merged: dict[int, set[int]] = {}
    for token in parts:
        todo, seen = [token], set[int]()
        while todo:
            more = parts.get(todo.pop(), set()) - seen
            seen |= more
            todo += more
        merged[token] = seen
    return merged


def chosen_ids(
    counts: Sequence[int],
    required: Collection[int],
    parts: Mapping[int, set[int]],
    *,
    keep_top: int | None,
    min_count: int | None,
) -> list[int]:
    """Chooses a trimmed vocabulary's ids, in the original order.

    Args:
      counts: occurrences of each token in the user's texts.
      required: ids to keep in any case.
      parts: id → ids to keep with it (`merged_from`).
      keep_top: number of tokens to keep, `required` included: the most frequent ones, then the first ones.
      min_count: keep the tokens with at least as many occurrences, and `required`.
    Raises:
      UserError: `keep_top` is smaller than `required` or larger than the vocabulary.
    """
    chosen = {*required}
    for position in required:
        chosen |= parts.get(position, set())
    if keep_top is None:
        for position in np.flatnonzero(np.asarray(counts) >= (min_count or 1)).tolist():
            chosen |= {position, *parts.get(position, ())}
        return sorted(chosen)
    if not len(chosen) <= keep_top <= len(counts):
        raise UserError(
            f"keep_top must be {len(chosen)} (special tokens, single characters and the tokens in {argument('keep')}) "
            f"to {len(counts)} (the whole vocabulary); received {keep_top}"
        )
    for position in sorted(range(len(counts)), key=lambda token_id: (-counts[token_id], token_id)):
        added = {position, *parts.get(position, ())} - chosen
        if len(chosen) + len(added) <= keep_top:
            chosen |= added
    return sorted(chosen)


def write_trimmed(vocabulary: Vocabulary, kept_ids: Sequence[int], folder: Path) -> Vocabulary:
    """Writes a vocabulary's files with some of its tokens.

    Args:
      vocabulary: the whole vocabulary.
      kept_ids: ids in ascending order, including `required_ids` and `merged_from`.
      folder: an existing folder.
    """
    paths = [folder / name for name in vocabulary.rules.files]
    kind_module(vocabulary.kind).write_kept(vocabulary, kept_ids, paths)
    new_ids = {position: index for index, position in enumerate(kept_ids)}
    added = tuple(dataclasses.replace(token, id=new_ids[token.id]) for token in vocabulary.added)
    merges = paths[1] if vocabulary.merges else None
    return dataclasses.replace(vocabulary, path=paths[0], merges=merges, added=added)
