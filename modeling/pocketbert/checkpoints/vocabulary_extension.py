"""Vocabulary extension: a model with more tokens, and embedding rows for them."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.checkpoints.directory import ModelDirectory, read_directory, write_directory
from pocketbert.checkpoints.spare_rows import per_token_weights
from pocketbert.errors import UserError, raise_if_any
from pocketbert.hub.download import local
from pocketbert.output_folders import MODEL_KIND, check_directory, check_inputs
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_tokens

_SHOWN = 5


@dataclass(frozen=True)
class ExtendResult:
    """An extended model.

    Attributes:
      tokens: vocabulary size before and after.
      parameters: number of weights before and after, heads included.
      ids: new token → id.
    """

    tokens: tuple[int, int]
    parameters: tuple[int, int]
    ids: dict[str, int]


def extend_vocabulary(
    model: str | os.PathLike[str],
    tokens: str | os.PathLike[str] | Sequence[str],
    output: str | os.PathLike[str],
    *,
    special: bool = False,
    overwrite: bool = False,
) -> ExtendResult:
    """Writes a model directory with more tokens, like transformers' `add_tokens` and `resize_token_embeddings`.

    A new token's row is the mean over the rows of its text's earlier tokens; so are its rows in a masked-LM head. All
    other weights stay as they are.

    Args:
      model: model directory with a tokenizer.
      tokens: file with one token per line, or the tokens.
      output: model directory to create.
      special: make the tokens special ones, found exactly as written, as `add_special_tokens` does. Others are found in
        the normalized text, so an uncased model finds them in any case.
      overwrite: replace an existing model directory.
    Raises:
      UserError: there is no tokenizer, or a token is empty, repeated, known or not found as itself. Writes nothing.
    """
    check_directory(output, MODEL_KIND, overwrite=overwrite)
    if isinstance(tokens, str | os.PathLike):
        check_inputs(output, (model, tokens))
        listed, source = read_tokens(tokens), str(tokens)
    else:
        check_inputs(output, (model,))
        listed, source = list(tokens), "tokens"
    directory, vocabulary = read_extendable(model)
    raise_if_any(_problems(listed, vocabulary.tokens()), source)
    extended = with_tokens(vocabulary, listed, normalized=not special, special=special)
    lost = lost_tokens(extended, listed)
    if lost:
        raise UserError(
            f"{source}: a tokenizer must find each token as itself; received {_some(lost)}, which it reads as another "
            "token or normalizes away; remove them"
        )
    return write_extended(directory, extended, listed, output, overwrite=overwrite)


def read_extendable(model: str | os.PathLike[str]) -> tuple[ModelDirectory, Vocabulary]:
    """Reads a model directory and its vocabulary; raises `UserError` if it has no tokenizer."""
    directory = read_directory(local(model))
    if directory.vocabulary is None:
        raise UserError(
            f"extending needs a model directory with a tokenizer; {model} has none; add its vocabulary files"
        )
    return directory, directory.vocabulary


def with_tokens(vocabulary: Vocabulary, tokens: Sequence[str], **flags: bool) -> Vocabulary:
    """Adds tokens after a vocabulary's last one; `flags` are as in `AddedToken`."""
    size = len(vocabulary.tokens())
    added = [AddedToken(content=token, id=size + index, **flags) for index, token in enumerate(tokens)]
    return dataclasses.replace(vocabulary, added=(*vocabulary.added, *added))


def lost_tokens(extended: Vocabulary, tokens: Sequence[str]) -> list[str]:
    """The tokens among the last added ones, `tokens`, that the tokenizer does not find as themselves."""
    from pocketbert.tokenizers.opening import open_tokenizer

    ids_of_tokens = open_tokenizer(extended).tokenize(tokens).to_list()
    added = extended.added[len(extended.added) - len(tokens) :]
    return [token.content for token, ids in zip(added, ids_of_tokens, strict=True) if ids != [token.id]]


def write_extended(
    directory: ModelDirectory,
    extended: Vocabulary,
    texts: Sequence[str],
    output: str | os.PathLike[str],
    *,
    overwrite: bool,
) -> ExtendResult:
    """Writes a model directory with added tokens.

    Args:
      directory: the model before.
      extended: its vocabulary with the new tokens.
      texts: one text per new token; its earlier tokens give the new row.
      output: model directory to create.
      overwrite: replace an existing model directory.
    """
    from pocketbert.tokenizers.opening import open_tokenizer

    assert directory.vocabulary is not None
    before, present = open_tokenizer(directory.vocabulary), len(directory.vocabulary.tokens())
    tensors = _extended(directory, before.tokenize(texts).to_list(), before.unk_token_id)
    config = directory.config.replace(vocab_size=present + len(texts))
    write_directory(output, config, directory.tasks, tensors, extended, overwrite=overwrite)
    sizes = [sum(int(array.size) for array in arrays.values()) for arrays in (directory.tensors, tensors)]
    return ExtendResult(
        tokens=(present, present + len(texts)),
        parameters=(sizes[0], sizes[1]),
        ids={token.content: token.id for token in extended.added[len(extended.added) - len(texts) :]},
    )


def _problems(listed: Sequence[str], tokens: Sequence[str]) -> list[str]:
    problems = []
    empty = [str(line) for line, token in enumerate(listed, start=1) if not token.strip()]
    if not listed:
        problems.append("the list must have at least one token; received none; add a line for each token")
    if empty:
        problems.append(f"tokens must not be empty; received empty lines {_some(empty, quoted=False)}; remove them")
    padded = [token for token in listed if token.strip() and token != token.strip()]
    if padded:
        problems.append(f"tokens must not begin or end with white space; received {_some(padded)}; remove the spaces")
    repeated = [token for token, count in Counter(listed).items() if token.strip() and count > 1]
    if repeated:
        problems.append(f"tokens must be unique; received again: {_some(repeated)}; remove the repetitions")
    existing = sorted({*listed} & {*tokens})
    if existing:
        problems.append(f"tokens must be new; received {_some(existing)}, which the vocabulary has; remove them")
    return problems


def _extended(directory: ModelDirectory, pieces: Sequence[Sequence[int]], unknown: int) -> dict[str, np.ndarray]:
    """All weights; those with one row per token get further rows: the mean over each entry's rows in `pieces`."""
    paths = per_token_weights(directory.tasks)
    return {
        path: np.concatenate([array, [array[list(ids or [unknown])].mean(axis=0) for ids in pieces]])
        if path in paths
        else array
        for path, array in directory.tensors.items()
    }


def _some(items: Sequence[str], *, quoted: bool = True) -> str:
    shown = ", ".join(map(repr if quoted else str, items[:_SHOWN]))
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
