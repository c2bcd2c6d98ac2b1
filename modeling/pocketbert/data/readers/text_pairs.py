"""Pairs of texts for encoders that read one text at a time."""

from __future__ import annotations

import dataclasses

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.notation import argument

# How often a text finds its partner as the nearest, or among the ten nearest, of all partners.
RECALL_METRICS = ("recall_at_1", "recall_at_10")


def single_texts(data: Examples, prompt: str = "") -> Examples:
    """The texts of pairs, one by one: first and second text of pair i have the places 2·i and 2·i + 1."""
    texts = (
        data.texts
        if data.pairs is None
        else [text for pair in zip(data.texts, data.pairs, strict=True) for text in pair]
    )
    ids = data.ids if data.pairs is None else [f"{example_id}-{side}" for example_id in data.ids for side in (1, 2)]
    return Examples([prompt + text for text in texts], None, None, ids, data.source)


def positive_pairs(data: Examples) -> Examples:
    """Pairs that belong together: without scores, they get the integer label 1."""
    if data.labels is not None or data.pairs is None:
        return data
    return dataclasses.replace(data, labels=np.ones(len(data), np.int32))


def text_numbers(data: Examples) -> np.ndarray:
    """A number for each text of `single_texts`, int32; equal texts have equal numbers."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in single_texts(data).texts], np.int32)


def is_positive(data: Examples) -> bool:
    """Whether the examples are positive pairs."""
    return data.labels is not None and data.labels.dtype == np.int32


def scaled_scores(data: Examples, largest: float = 1.0) -> Examples:
    """Divides scores by the largest possible one, so that they can be targets of cosines.

    Raises:
      UserError: a score then lies outside of -1 to 1.
    """
    if data.labels is None or is_positive(data):
        return data
    scores = (data.labels / largest).astype(np.float32)
    worst = float(data.labels[np.abs(scores).argmax()])
    if abs(worst) > abs(largest):
        raise UserError(
            f"{data.source}: scores must lie in -{largest:g} to {largest:g}, for cosines of -1 to 1; "
            f"received {worst:g}; give the largest possible score as {argument('max_score')}"
        )
    return dataclasses.replace(data, labels=scores)
