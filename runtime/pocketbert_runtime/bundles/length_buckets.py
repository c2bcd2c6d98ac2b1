"""Assign each text to the shortest signature that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class LengthBucket:
    """Texts with one length.

    Attributes:
      length: the signature's sequence length in tokens.
      indices: `[n]`, the texts' positions in the input.
      inputs: int32 `[n, length]` each.
    """

    length: int
    indices: np.ndarray
    inputs: Inputs


def fit_length(inputs: Mapping[str, np.ndarray], length: int, pad_token_id: int) -> Inputs:
    """Truncates or pads arrays `[n, s]` to `[n, length]`; raises a `ValueError` if a text has more tokens."""
    longest = int(inputs["input_mask"].sum(axis=1).max(initial=0))
    if longest > length:
        raise ValueError(f"all texts must fit into {length} tokens; the longest has {longest}")
    fitted = {}
    for name, array in inputs.items():
        fill = pad_token_id if name == "input_word_ids" else 0
        result = np.full((len(array), length), fill, np.int32)
        shared = min(length, array.shape[1])
        result[:, :shared] = array[:, :shared]
        fitted[name] = result
    return fitted


def bucket_by_length(inputs: Mapping[str, np.ndarray], lengths: Sequence[int], pad_token_id: int) -> list[LengthBucket]:
    """Sorts texts into a bundle's lengths; returns one entry for each length with texts, shortest first.

    Args:
      inputs: int32 `[n, s]` each; no text is longer than the longest length.
      lengths: the bundle's lengths.
      pad_token_id: the padding token's id.
    """
    counts = inputs["input_mask"].sum(axis=1)
    ordered = np.sort(np.asarray(lengths))
    slots = np.searchsorted(ordered, counts)
    placed = []
    for slot in np.unique(slots):
        if slot == len(ordered):
            raise ValueError(f"all texts must fit into {ordered[-1]} tokens; the longest has {counts.max()}")
        indices = np.flatnonzero(slots == slot)
        length = int(ordered[slot])
        rows = {name: array[indices] for name, array in inputs.items()}
        placed.append(LengthBucket(length, indices, fit_length(rows, length, pad_token_id)))
    return placed
