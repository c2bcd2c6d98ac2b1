"""Texts as rows with token ids, without padding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pocketbert_runtime.progress import bar
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES

BUCKET_MULTIPLE = 8
_TEXTS_A_CALL = 4096


@dataclass(frozen=True)
class TokenRows:
    """Concatenated token ids for N examples with different lengths.

    Attributes:
      word_ids: int32 `[tokens]`, including special tokens, without padding.
      type_ids: int32 `[tokens]` segments; int8 for packed text.
      offsets: int64 `[N + 1]`; example i has the tokens `offsets[i]:offsets[i + 1]`.
      max_length: maximum sequence length, with padding.
      pad_token_id: padding id.
      rows_per_example: rows that stay together in a batch: 2 for text pairs that an encoder reads one by one. Example i
        then has the rows 2·i and 2·i + 1; `offsets` has an entry for each row.
    """

    word_ids: np.ndarray
    type_ids: np.ndarray
    offsets: np.ndarray
    max_length: int
    pad_token_id: int
    rows_per_example: int = 1

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.rows_per_example

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[N]`, number of tokens in each example's longest row."""
        return np.diff(self.offsets).reshape(-1, self.rows_per_example).max(axis=1)

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Returns the rows for the examples at `indices`, in this order."""
        if self.rows_per_example == 1:
            return indices
        return (indices[:, None] * self.rows_per_example + np.arange(self.rows_per_example)).ravel()

    def inputs(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns inputs, int32 `[B, L]`, for the B rows of the examples at `indices`; L is their bucket's length."""
        indices = self.rows(indices)
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        width = int(bucketed(lengths.max(), self.max_length))
        inputs = {name: np.zeros((len(indices), width), np.int32) for name in INPUT_NAMES}
        inputs["input_word_ids"].fill(self.pad_token_id)
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            inputs["input_word_ids"][row, :length] = self.word_ids[start : start + length]
            inputs["input_mask"][row, :length] = 1
            inputs["input_type_ids"][row, :length] = self.type_ids[start : start + length]
        return inputs


def bucketed(lengths: Any, max_length: int, bucket_multiple: int = BUCKET_MULTIPLE) -> Any:
    """Rounds lengths up to batch widths: multiples of `bucket_multiple`, at most `max_length`."""
    return np.minimum(-(-np.asarray(lengths) // bucket_multiple) * bucket_multiple, max_length)


def token_rows(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    tokenizer: Callable[..., Any],
    max_length: int,
    *,
    show_progress: bool = False,
) -> TokenRows:
    """Tokenizes texts in chunks.

    Args:
      texts: at least one text.
      pairs: each pair's second text, or None.
      tokenizer: `tokenizer(texts, pairs, max_length=…)` returns int32 `[B, L]`, right-padded with
        `tokenizer.pad_token_id`.
      max_length: maximum sequence length; longer texts are truncated.
      show_progress: whether to show a progress bar on stderr.
    """
    word_ids, type_ids, lengths = [], [], []
    with bar(len(texts), "tokenize", "text") if show_progress else contextlib.nullcontext() as progress:
        for start in range(0, len(texts), _TEXTS_A_CALL):
            chunk = slice(start, start + _TEXTS_A_CALL)
            encoded = tokenizer(texts[chunk], None if pairs is None else pairs[chunk], max_length=max_length)
            words, mask, types = (np.asarray(encoded[name]) for name in INPUT_NAMES)
            is_token = mask == 1
            word_ids.append(words[is_token])
            type_ids.append(types[is_token])
            lengths.append(mask.sum(axis=1))
            if progress is not None:
                progress.update(len(mask))
    return TokenRows(
        word_ids=np.concatenate(word_ids).astype(np.int32),
        type_ids=np.concatenate(type_ids).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64),
        max_length=max_length,
        pad_token_id=int(tokenizer.pad_token_id),  # type: ignore[attr-defined]
    )
