"""Labelled texts in memory: what every reader gives and every consumer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Examples:
    """Texts, and their labels where they have any. All parts are aligned: row i everywhere is example i.

    Attributes:
      texts: the sentences, or the first sentences of pairs.
      pairs: the second sentences, or None if the examples are single sentences.
      labels: int32 `[N]` class indices, float32 `[N]` scores, int32 `[N, labels]` of 0 and 1 where an example has any
        number of labels, or None if the examples are unlabelled.
      ids: one name an example, all different.
      source: where they come from, for messages and records: a file's path or a data set's name.
      groups: the group of each example, where metrics are also wanted by group (a language, say), or None.
      skipped_rows: how many rows of the file are left out, since something is wrong with them.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: np.ndarray | None
    ids: list[str]
    source: str
    groups: list[str] | None = None
    skipped_rows: int = 0

    def __post_init__(self) -> None:
        count = len(self.texts)
        for name, part in (("pairs", self.pairs), ("labels", self.labels), ("ids", self.ids), ("groups", self.groups)):
            if part is not None and len(part) != count:
                raise ValueError(f"{name} must be as many as texts; received {len(part)} and {count}")
        forms = ((np.int32, 1), (np.float32, 1), (np.int32, 2))
        if self.labels is not None and (self.labels.dtype, self.labels.ndim) not in forms:
            raise ValueError(
                "labels must be int32 [N], float32 [N] or int32 [N, labels]; received "
                f"{self.labels.dtype} {self.labels.shape}"
            )
        if len(set(self.ids)) != count:
            raise ValueError(f"ids must differ from one another; received {count - len(set(self.ids))} repeated")

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, indices: Sequence[int] | np.ndarray) -> Examples:
        """The examples at `indices`, in that order; each at most once."""
        chosen = [int(index) for index in indices]
        return Examples(
            texts=[self.texts[index] for index in chosen],
            pairs=None if self.pairs is None else [self.pairs[index] for index in chosen],
            labels=None if self.labels is None else self.labels[np.asarray(chosen, np.int64)],
            ids=[self.ids[index] for index in chosen],
            source=self.source,
            groups=None if self.groups is None else [self.groups[index] for index in chosen],
        )
