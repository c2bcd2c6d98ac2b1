"""The dev split of your examples, used if there is no dev file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError

PART = 0.1
# A tenth of 30 is three.
_ROUNDING = 1e-9

Given = TypeVar("Given", bound=LabelledData)


def train_dev_split(
    examples: Given, part: float = PART, seed: int = 0, *, stratify: bool = False
) -> tuple[Given, Given]:
    """Draws the dev split; examples with the same first text, or the same paragraph, stay together.

    Texts that have more examples than the part come last, the smaller first, so that one of them is not all of it.

    Args:
      examples: sentences, pairs or questions.
      part: of all examples, about so many: whole texts until there are enough, without the last if with it there would
        be more than twice as many.
      seed: of the draw.
      stratify: take the part of each class, to within a row where each text has one, and leave at least one row of
        each class to train on. Scores, questions, and texts that have too many rows for that are drawn as without.

    Returns:
      Those to train on, and those in the dev split.

    Raises:
      UserError: there are fewer than two different texts.
    """
    groups: dict[int, int] = {}
    group_of = np.asarray([groups.setdefault(hash(text), len(groups)) for text in examples.split_keys])
    if len(groups) < 2:
        raise UserError(
            f"to set a part aside there must be at least two different texts; {examples.source} has {len(groups)}; "
            "give a development file"
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    sizes, wanted = np.bincount(group_of), part * len(group_of)
    order = order[np.argsort(np.maximum(sizes[order], wanted), kind="stable")]
    drawn: Sequence[int] = ()
    if stratify and examples.classes is not None:
        drawn = _draw_of_each_class(examples.classes, group_of, order, part)
    if not drawn:
        totals = np.cumsum(sizes[order])
        enough, bearable = np.searchsorted(totals, wanted) + 1, np.searchsorted(totals, 2 * wanted, side="right")
        # At least one, and never all.
        drawn = order[: int(np.clip(min(enough, bearable), 1, len(groups) - 1))].tolist()
    aside = np.isin(group_of, drawn)
    return examples.select(np.flatnonzero(~aside)), examples.select(np.flatnonzero(aside))


def _draw_of_each_class(labels: np.ndarray, group_of: np.ndarray, order: np.ndarray, part: float) -> list[int]:
    """The groups, in their order, that are within what is left of the quota of each of their classes."""
    counts = np.bincount(labels)
    # Whole rows of each class, and one more of those that lose most by it, until there are as many as of all.
    shares = part * counts
    quotas = np.floor(shares + _ROUNDING).astype(np.int64)
    missing = int(np.ceil(shares.sum() - _ROUNDING)) - int(quotas.sum())
    first_seen = np.full(len(counts), len(order))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    np.minimum.at(first_seen, labels, places[group_of])
    # Among equals the classes that the draw comes to first, or it would always be the first labels.
    quotas[np.lexsort((first_seen, quotas - shares))[: max(missing, 0)]] += 1
    left = np.minimum(quotas, np.maximum(counts - 1, 0))
    rows = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    drawn = []
    for group in order:
        found, times = np.unique(labels[rows[group]], return_counts=True)
        if (times <= left[found]).all():
            left[found] -= times
            drawn.append(int(group))
    return drawn
