"""Inputs for the gate on every runtime, and the outputs in the same structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pocketbert_export.checks.outputs import Outputs, join
from pocketbert_runtime.bundles.length_buckets import Inputs, LengthBucket, bucket_by_length, fit_length

PADDING_ROWS = 8
LENGTH_ROWS = 8
FULL_ROWS = 8


class ValidationInputs:
    """Named parts with input rows at several lengths, run in one call.

    Args:
      encoded: int32 `[n, s]` by name, from real texts.
      lengths: the bundle's lengths, ascending.
      pad_token_id: the padding token's id.
      vocab_size: exclusive upper limit for random ids.
      type_vocab_size: exclusive upper limit for random segments.
      goldens: the golden examples' inputs, `[1, length]`.
      fixed_ranges: whether texts like these decided the file's activation ranges. Full rows then have a second segment
        only if the texts have one.
    """

    def __init__(
        self,
        encoded: Inputs,
        lengths: Sequence[int],
        *,
        pad_token_id: int,
        vocab_size: int,
        type_vocab_size: int,
        goldens: Sequence[Inputs],
        fixed_ranges: bool = False,
    ) -> None:
        self.lengths = tuple(lengths)
        self.examples: list[LengthBucket] = bucket_by_length(encoded, lengths, pad_token_id)
        self._rows: dict[int, list[Inputs]] = {length: [] for length in lengths}
        # Name → (length, first row, row after the last) for each part.
        self._parts: dict[str, list[tuple[int, int, int]]] = {}
        for placed in self.examples:
            self._add("examples", placed.length, placed.inputs)
        two_segments = type_vocab_size > 1 and (not fixed_ranges or bool(encoded["input_type_ids"].any()))
        generator = np.random.default_rng(0)
        shortest = min(lengths)
        same = cut({name: array[:LENGTH_ROWS] for name, array in encoded.items()}, shortest, pad_token_id)
        for length in lengths:
            # At least a quarter of every row is padding, however long the texts are.
            rows = {name: array[:PADDING_ROWS] for name, array in encoded.items()}
            quiet = fit_length(cut(rows, length - max(1, length // 4), pad_token_id), length, pad_token_id)
            self._add("padding", length, quiet)
            self._add("noise", length, with_noise(quiet, generator, vocab_size, type_vocab_size))
            self._add("lengths", length, fit_length(same, length, pad_token_id))
            halves = with_segments(quiet)
            self._add("segments", length, halves)
            self._add("no segments", length, {**halves, "input_type_ids": np.zeros_like(halves["input_type_ids"])})
            self._add("full", length, full_rows(encoded, length, two_segments=two_segments))
        for inputs in goldens:
            self._add("goldens", inputs["input_mask"].shape[1], inputs)

    def batches(self, signature: Callable[[int], str]) -> dict[str, Inputs]:
        """Returns all rows, by signature."""
        return {signature(length): join(parts) for length, parts in self._rows.items()}

    def answers(self, name: str, answers_by_length: Mapping[int, Outputs]) -> list[dict[str, np.ndarray]]:
        """Returns the outputs for the parts called `name`, in insertion order."""
        return [
            {output: array[first:last] for output, array in answers_by_length[length].items()}
            for length, first, last in self._parts[name]
        ]

    def inputs(self, name: str) -> list[Inputs]:
        """Returns the rows in the parts called `name`."""
        return self.answers(name, {length: join(parts) for length, parts in self._rows.items()})

    def masks(self, name: str) -> list[np.ndarray]:
        """Returns the masks `[n, length]` for the parts called `name`."""
        return [inputs["input_mask"] for inputs in self.inputs(name)]

    def _add(self, name: str, length: int, inputs: Inputs) -> None:
        first = sum(len(part["input_mask"]) for part in self._rows[length])
        self._rows[length].append(inputs)
        self._parts.setdefault(name, []).append((length, first, first + len(inputs["input_mask"])))


def cut(inputs: Inputs, length: int, pad_token_id: int) -> Inputs:
    """Turns all tokens from position `length` on into padding."""
    in_length = (np.arange(inputs["input_mask"].shape[1]) < length) & (inputs["input_mask"] == 1)
    fills = {"input_word_ids": pad_token_id}
    return {name: np.where(in_length, array, fills.get(name, 0)).astype(np.int32) for name, array in inputs.items()}


def full_rows(inputs: Inputs, length: int, *, two_segments: bool) -> dict[str, np.ndarray]:
    """Joins several texts' tokens to rows without padding, `[FULL_ROWS, length]`.

    Texts in a validation set may all be short, and then reach no late position. With `two_segments`, the second half of
    every other row is a second segment.
    """
    counts = inputs["input_mask"].sum(axis=1)
    ids = [row[:count] for row, count in zip(inputs["input_word_ids"], counts, strict=True) if count > 2]
    rows = np.zeros((FULL_ROWS, length), np.int32)
    for number in range(FULL_ROWS):
        start = number * max(1, len(ids) // FULL_ROWS)
        joined: list[np.ndarray] = []
        while sum(map(len, joined)) < length and ids:
            # Takes the tokens between the first and the last one, which frame each text.
            joined.append(ids[start % len(ids)][1:-1])
            start += 1
        if ids:
            rows[number] = np.concatenate([ids[0][:1], *joined])[:length]
            rows[number, -1] = ids[0][-1]
    full = {"input_word_ids": rows, "input_mask": np.ones_like(rows), "input_type_ids": np.zeros_like(rows)}
    if two_segments:
        full["input_type_ids"][1::2] = with_segments(full)["input_type_ids"][1::2]
    return full


def with_segments(inputs: Inputs) -> Inputs:
    """Makes the second half of each row's tokens a second segment, whether or not the texts are pairs."""
    mask = inputs["input_mask"]
    second = (np.cumsum(mask, axis=1) > mask.sum(axis=1, keepdims=True) // 2) & (mask == 1)
    return {**inputs, "input_type_ids": second.astype(np.int32)}


def with_noise(inputs: Inputs, generator: np.random.Generator, vocab_size: int, type_vocab_size: int) -> Inputs:
    """Fills positions with mask 0 with random ids and segments."""
    padding = inputs["input_mask"] == 0
    below = {"input_word_ids": vocab_size, "input_type_ids": max(type_vocab_size, 1)}
    return {
        name: np.where(padding, generator.integers(0, below[name], array.shape), array).astype(np.int32)
        if name in below
        else array
        for name, array in inputs.items()
    }
