"""Which signature a text goes to: the shortest one that holds all its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class LengthBucket:
    """The texts that one length holds.

    Attributes:
      length: tokens of the signature.
      indices: `[n]`, positions of these texts among those given.
      inputs: int32 `[n, length]` each.
    """

    length: int
    indices: np.ndarray
    inputs: Inputs


def fit_length(inputs: Mapping[str, np.ndarray], length: int, pad_token_id: int) -> Inputs:
    """Cuts or pads arrays `[n, s]` to `[n, length]`; only padding may be cut.

    Raises:
      ValueError: a text has more tokens than `length`.
    """
    longest = int(inputs["input_mask"].sum(axis=1).max(initial=0))
    if longest > length:
        raise ValueError(f"all texts must fit into {length} tokens; the longest has {longest}")
    fitted = {}
    for name, array in inputs.items():
        fill = pad_token_id if name == "input_word_ids" else 0
        result = np.full((len(array), length), fill, np.int32)
        kept = min(length, array.shape[1])
        result[:, :kept] = array[:, :kept]
        fitted[name] = result
    return fitted


def bucket_by_length(inputs: Mapping[str, np.ndarray], lengths: Sequence[int], pad_token_id: int) -> list[LengthBucket]:
    """Sorts texts into the lengths of a bundle.

    Args:
      inputs: int32 `[n, s]` each, no text longer than the longest length.
      lengths: what the bundle offers.
      pad_token_id: fills up to the length.

    Returns:
      one entry for each length that holds any text, shortest first.
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
