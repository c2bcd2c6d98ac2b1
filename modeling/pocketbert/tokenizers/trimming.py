"""Smaller vocabularies that tokenize a user's texts as before.

If a text's tokens are all kept, removing others does not change them:

- WordPiece takes the longest token at each position, and that token is still the longest.
- Byte-level BPE applies the same merges in the same order, if the tokens merged into a kept token are kept too.
- A unigram model's best path is still the best: every other path had a lower score already.

Words with unknown parts are an exception: with other tokens they may become known or be split elsewhere.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_runtime.tokenizers.added_tokens import special_tokens
from pocketbert_runtime.tokenizers.byte_bpe_files import byte_characters, read_byte_bpe
from pocketbert_runtime.tokenizers.sentencepiece_model import FAIRSEQ_OFFSET, read_model
from pocketbert_runtime.tokenizers.vocabulary import FILE_NAMES, Vocabulary

_CONTINUATION = "##"
_SHOWN = 5


def required_ids(vocabulary: Vocabulary) -> list[int]:
    """Ids of special and added tokens, single characters and bytes; with them, a vocabulary can write every word."""
    required = {*special_tokens(vocabulary.kind), *(token.content for token in vocabulary.added)}
    if vocabulary.kind == "byte_bpe":
        required |= {*byte_characters()}
    prefix = _CONTINUATION if vocabulary.kind == "wordpiece" else ""
    return [
        position
        for position, token in enumerate(vocabulary.tokens())
        if token in required or (vocabulary.kind != "byte_bpe" and len(token.removeprefix(prefix)) == 1)
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
    if vocabulary.kind != "byte_bpe":
        return {}
    assert vocabulary.merges is not None
    files = read_byte_bpe(vocabulary.path, vocabulary.merges)
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
    paths = [folder / name for name in FILE_NAMES[vocabulary.kind]]
    new_ids = {position: index for index, position in enumerate(kept_ids)}
    added = tuple(dataclasses.replace(token, id=new_ids[token.id]) for token in vocabulary.added)
    trimmed = dataclasses.replace(vocabulary, path=paths[0], added=added)
    if vocabulary.kind == "unigram":
        _write_unigram(vocabulary, kept_ids, paths[0])
        return trimmed
    tokens = vocabulary.base_tokens()
    tokens = [tokens[position] for position in kept_ids if position < len(tokens)]
    if vocabulary.kind == "wordpiece":
        paths[0].write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        return trimmed
    assert vocabulary.merges is not None
    token_set = {*tokens}
    merges = [
        (left, right)
        for left, right in read_byte_bpe(vocabulary.path, vocabulary.merges).merges
        if {left, right, left + right} <= token_set
    ]
    ids = {token: position for position, token in enumerate(tokens)}
    paths[0].write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    paths[1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return dataclasses.replace(trimmed, merges=paths[1])


def _write_unigram(vocabulary: Vocabulary, kept_ids: Sequence[int], path: Path) -> None:
    whole = read_model(vocabulary.path)
    positions = {position - FAIRSEQ_OFFSET for position in kept_ids}
    # The model's first three subwords are special tokens with other ids.
    subwords = [
        copy.deepcopy(subword) for index, subword in enumerate(whole.subwords) if index < 3 or index in positions
    ]
    del whole.subwords[:]
    whole.subwords.extend(subwords)
    whole.trainer_spec.vocab_size = len(subwords)
    path.write_bytes(whole.SerializeToString(deterministic=True))
