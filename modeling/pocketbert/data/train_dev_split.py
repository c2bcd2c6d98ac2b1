"""Train/dev split, for data without a dev file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.data.label_strata import deal_out, rows_by_group
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.errors import UserError
from pocketbert.notation import argument

PART = 0.1
# A tenth of 30 is three.
_ROUNDING = 1e-9

Given = TypeVar("Given", bound=LabelledData)


def train_dev_split(
    examples: Given, part: float = PART, seed: int = 0, *, stratify: bool = False
) -> tuple[Given, Given]:
    """Draws training examples and a dev split. Examples with the same first text or paragraph stay together.

    Texts with more examples than the whole dev split are drawn last, the smaller first, so that none of them fills it.

    Args:
      examples: sentences, pairs or questions.
      part: approximate fraction in the dev split. Texts are added until it is reached; the last one is left out if it
        would make the split more than twice as large.
      seed: random seed.
      stratify: draw the same fraction from each class (to within one row, if each text has one row), or about that from
        each of several labels, and keep at least one training row for each. No effect for scores, for questions, and if
        texts have too many rows. If heads label only some texts, draw it from each head's texts, at least one.
    Raises:
      UserError: there are fewer than two different texts, or a head has too few.
    """
    groups: dict[int, int] = {}
    group_of = np.asarray([groups.setdefault(hash(text), len(groups)) for text in examples.split_keys])
    if len(groups) < 2:
        raise UserError(
            f"a dev split needs at least two different texts; received {len(groups)} in {examples.source}; "
            f"pass {argument('dev')}"
        )
    random = np.random.default_rng(seed)
    order = random.permutation(len(groups))
    sizes, wanted = np.bincount(group_of), part * len(group_of)
    order = order[np.argsort(np.maximum(sizes[order], wanted), kind="stable")]
    drawn: Sequence[int] = ()
    if stratify and examples.classes is not None:
        drawn = _draw_of_each_class(examples.classes, group_of, order, part)
    if stratify and examples.label_sets is not None:
        drawn = _draw_of_each_label(examples.label_sets, group_of, order, part, random)
    if stratify and isinstance(examples, SharedTexts) and examples.rows is not None:
        drawn = _draw_of_each_head(examples, group_of, order, part)
    if not drawn:
        totals = np.cumsum(sizes[order])
        enough, bearable = np.searchsorted(totals, wanted) + 1, np.searchsorted(totals, 2 * wanted, side="right")
        # At least one group, but not all.
        drawn = order[: int(np.clip(min(enough, bearable), 1, len(groups) - 1))].tolist()
    aside = np.isin(group_of, drawn)
    return examples.select(np.flatnonzero(~aside)), examples.select(np.flatnonzero(aside))


def _draw_of_each_class(labels: np.ndarray, group_of: np.ndarray, order: np.ndarray, part: float) -> list[int]:
    """Draws groups in `order` while their classes' quotas allow it; returns their numbers."""
    counts = np.bincount(labels)
    first_seen = np.full(len(counts), len(order))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    np.minimum.at(first_seen, labels, places[group_of])
    left = _quotas(counts, part, first_seen)
    rows = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    drawn = []
    for group in order:
        classes, times = np.unique(labels[rows[group]], return_counts=True)
        if (times <= left[classes]).all():
            left[classes] -= times
            drawn.append(int(group))
    return drawn


def _draw_of_each_label(
    labels: np.ndarray, group_of: np.ndarray, order: np.ndarray, part: float, random: np.random.Generator
) -> list[int]:
    """Draws groups so that each label has its quota; returns their numbers, or none if they have too many rows."""
    counts, sizes = rows_by_group(labels, group_of), np.bincount(group_of)
    totals, share = counts.sum(axis=0, dtype=np.int64), part * len(group_of)
    quotas, rows = _quotas(totals, part, (counts[order] > 0).argmax(axis=0)), int(np.ceil(share - _ROUNDING))
    missing, room = np.stack([quotas, totals - quotas]), np.array([rows, len(group_of) - rows])
    aside = deal_out(counts, sizes, missing, room, random) == 0
    in_training, drawn_rows = totals - counts[aside].sum(axis=0, dtype=np.int64), int(sizes[aside].sum())
    for group in np.flatnonzero(aside):
        # Rows for rarer labels may have taken another label's last ones.
        if (in_training[counts[group] > 0] == 0).any():
            aside[group], in_training, drawn_rows = False, in_training + counts[group], drawn_rows - sizes[group]
    for group in order:
        # Rows with several labels meet the quotas before there are enough of them.
        if drawn_rows >= rows:
            break
        keeps_labels = (counts[group] < in_training)[counts[group] > 0].all()
        if not aside[group] and keeps_labels and drawn_rows + sizes[group] <= 2 * share:
            aside[group], in_training, drawn_rows = True, in_training - counts[group], drawn_rows + sizes[group]
    return [] if drawn_rows > 2 * share else np.flatnonzero(aside).tolist()


def _draw_of_each_head(examples: SharedTexts, group_of: np.ndarray, order: np.ndarray, part: float) -> list[int]:
    """Draws groups in `order` until each head and each of its labels has its share; returns their numbers.

    The rarest comes first, as in `label_strata`. Each label keeps a training text, unless a head would else have no dev
    text. Raises `UserError` if a head has too few texts for both splits.
    """
    heads = [*examples.parts]
    counts = rows_by_group(examples.strata, group_of)
    for columns in (counts, counts[:, : len(heads)]):
        totals = columns.sum(axis=0, dtype=np.int64)
        quotas = np.floor(part * totals + _ROUNDING).astype(np.int64)
        quotas[: len(heads)] = np.maximum(np.ceil(part * totals[: len(heads)] - _ROUNDING), 1)
        taken, aside = np.zeros_like(totals), np.zeros(len(order), bool)
        for column in np.argsort(totals, kind="stable"):
            for group in order[columns[order, column] > 0]:
                if taken[column] >= quotas[column]:
                    break
                if not aside[group] and (taken + columns[group] < totals)[columns[group] > 0].all():
                    aside[group], taken = True, taken + columns[group]
        if taken[: len(heads)].all():
            return np.flatnonzero(aside).tolist()
    missing = ", ".join(name for name, count in zip(heads, taken, strict=False) if not count)
    raise UserError(
        f"a dev split needs texts of each head beside training texts with its labels; received too few for {missing} "
        f"in {examples.source}; pass {argument('dev')}, or more texts"
    )


def _quotas(counts: np.ndarray, part: float, first_seen: np.ndarray) -> np.ndarray:
    """Returns the number of rows to draw for each label, int64 [labels]; at least one is left."""
    # Round down, then give the missing rows to the labels with the largest remainders.
    shares = part * counts
    quotas = np.floor(shares + _ROUNDING).astype(np.int64)
    missing = int(np.ceil(shares.sum() - _ROUNDING)) - int(quotas.sum())
    # Equal remainders: prefer the label that is drawn first; otherwise the first labels would always win.
    quotas[np.lexsort((first_seen, quotas - shares))[: max(missing, 0)]] += 1
    return np.minimum(quotas, np.maximum(counts - 1, 0))
