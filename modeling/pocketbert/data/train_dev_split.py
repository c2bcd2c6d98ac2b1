"""Train/dev split, for data without a dev file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.errors import UserError
from pocketbert.notation import argument

PART = 0.1
# A tenth of 30 is three.
_ROUNDING = 1e-9

Given = TypeVar("Given", bound=LabelledData)


def train_dev_split(
    examples: Given, part: float = PART, seed: int = 0, *, stratify: bool = False
) -> tuple[Given, Given]:
    """Draws a dev split. Examples with the same first text, or the same paragraph, stay together.

    Texts with more examples than the whole dev split are drawn last, the smaller first, so that a single text does not
    fill it.

    Args:
      examples: sentences, pairs or questions.
      part: approximate fraction in the dev split. Texts are added until it is reached; the last one is left out if it
        would make the split more than twice as large.
      seed: random seed.
      stratify: draw the same fraction of each class (to within one row, if each text has one row), and keep at least
        one training row of each class. No effect for scores, for questions, and if texts have too many rows.

    Returns:
      Training examples and dev split.

    Raises:
      UserError: there are fewer than two different texts.
    """
    groups: dict[int, int] = {}
    group_of = np.asarray([groups.setdefault(hash(text), len(groups)) for text in examples.split_keys])
    if len(groups) < 2:
        raise UserError(
            f"a dev split needs at least two different texts; received {len(groups)} in {examples.source}; "
            f"pass {argument('dev')}"
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
        # At least one group, but not all.
        drawn = order[: int(np.clip(min(enough, bearable), 1, len(groups) - 1))].tolist()
    aside = np.isin(group_of, drawn)
    return examples.select(np.flatnonzero(~aside)), examples.select(np.flatnonzero(aside))


def _draw_of_each_class(labels: np.ndarray, group_of: np.ndarray, order: np.ndarray, part: float) -> list[int]:
    """Draws groups in `order` while the quotas of their classes allow it; returns their numbers."""
    counts = np.bincount(labels)
    # Round down, then give the missing rows to the classes with the largest remainders.
    shares = part * counts
    quotas = np.floor(shares + _ROUNDING).astype(np.int64)
    missing = int(np.ceil(shares.sum() - _ROUNDING)) - int(quotas.sum())
    first_seen = np.full(len(counts), len(order))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    np.minimum.at(first_seen, labels, places[group_of])
    # Equal remainders: prefer the class that is drawn first; otherwise the first labels would always win.
    quotas[np.lexsort((first_seen, quotas - shares))[: max(missing, 0)]] += 1
    left = np.minimum(quotas, np.maximum(counts - 1, 0))
    rows = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    drawn = []
    for group in order:
        classes, times = np.unique(labels[rows[group]], return_counts=True)
        if (times <= left[classes]).all():
            left[classes] -= times
            drawn.append(int(group))
    return drawn
