"""Divides multi-label examples into parts that each have their share of every label.

Iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011, "On the stratification of multi-label data",
https://doi.org/10.1007/978-3-642-23808-6_10, algorithm 1): the label with the fewest examples left comes first, and
each of its examples goes to the part that lacks this label most.

Departure: texts are dealt out instead of examples, those with the label's most examples first.
"""

from __future__ import annotations

import numpy as np


def rows_by_group(labels: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """Counts each group's rows with each label, int32 [groups, labels].

    Args:
      labels: 0 or 1, [N, labels].
      group_of: each row's group, int [N], from 0.
    """
    counts = np.zeros((int(group_of.max()) + 1, labels.shape[1]), np.int32)
    np.add.at(counts, group_of, labels)
    return counts


def deal_out(
    counts: np.ndarray,
    sizes: np.ndarray,
    missing: np.ndarray,
    room: np.ndarray,
    random: np.random.Generator,
    unit: int = 1,
) -> np.ndarray:
    """Returns each group's part, int64 [groups], from 0.

    Args:
      counts: see `rows_by_group`.
      sizes: each group's number of rows, [groups].
      missing: whole numbers [parts, labels]: `unit` times the rows with each label that each part should have.
      room: whole numbers [parts]: `unit` times the rows for each part.
      random: breaks ties.
      unit: makes row shares whole numbers, so that equal ones are equal.
    """
    missing, room = missing.astype(np.int64), room.astype(np.int64)
    part_of, rank = np.full(len(sizes), -1), random.permutation(len(sizes))
    left = counts.sum(axis=0, dtype=np.int64)
    while (part_of < 0).any():
        # Examples without labels come last; only part sizes count for them.
        label, weights = -1, sizes
        if left.any():
            label = int(random.choice(np.flatnonzero(left == left[left > 0].min())))
            weights = counts[:, label]
        groups = np.flatnonzero((part_of < 0) & (weights > 0))
        for group in groups[np.lexsort((rank[groups], -weights[groups]))]:
            lacking = missing[:, label] if label >= 0 else room
            part = np.lexsort((random.random(len(room)), -room, -lacking))[0]
            part_of[group] = part
            missing[part] -= unit * counts[group]
            room[part] -= unit * sizes[group]
            left -= counts[group]
    return part_of


def label_folds(labels: np.ndarray, group_of: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns each row's fold, int64 [N], from 0. A group's rows are in one fold, and no fold is empty.

    Args:
      labels: 0 or 1, [N, labels].
      group_of: each row's group, int [N], from 0; at least `count` groups.
      count: number of folds.
      seed: random seed.
    """
    counts, sizes = rows_by_group(labels, group_of), np.bincount(group_of)
    # `count` times an equal share is the sum.
    missing = np.tile(counts.sum(axis=0, dtype=np.int64), (count, 1))
    room = np.full(count, len(group_of))
    return deal_out(counts, sizes, missing, room, np.random.default_rng(seed), unit=count)[group_of]
