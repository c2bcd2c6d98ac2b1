"""Labelled texts in memory: what every reader gives and every consumer takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class LabelledData(Protocol):
    """Common interface of `Examples` and `QuestionFile`, for trainers."""

    @property
    def source(self) -> str:
        """Where the data come from, for messages."""

    @property
    def identity(self) -> str:
        """SHA-256 of everything that a run reads."""

    @property
    def labelled(self) -> bool:
        """Whether every example has its label."""

    @property
    def missing_labels(self) -> str:
        """Name of the missing labels, for a message."""

    @property
    def has_pairs(self) -> bool:
        """Whether an example is two texts."""

    @property
    def split_keys(self) -> Iterable[str]:
        """A text for each example; examples with the same one stay together when a part is split off."""

    @property
    def classes(self) -> np.ndarray | None:
        """int32 [N], or None where an example has no single class."""

    def __len__(self) -> int: ...

    def select(self, indices: Any) -> Any:
        """The examples at `indices`."""

    def first_texts(self, count: int) -> Examples:
        """At most the first `count`, unlabelled, as the texts or pairs that a tokenizer takes."""


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

    @property
    def identity(self) -> str:
        """SHA-256 of the texts, labels and, where there are any, groups."""
        digest = hashlib.sha256()
        for part in (self.texts, self.pairs):
            digest.update(json.dumps(part).encode())
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        if self.groups is not None:
            digest.update(json.dumps(self.groups).encode())
        return digest.hexdigest()

    @property
    def labelled(self) -> bool:
        """Whether they have labels."""
        return self.labels is not None

    @property
    def missing_labels(self) -> str:
        """For a message."""
        return f"labels; {self.source} has none"

    @property
    def has_pairs(self) -> bool:
        """Whether they are pairs of texts."""
        return self.pairs is not None

    @property
    def classes(self) -> np.ndarray | None:
        """The labels where each example has one class, else None."""
        labels = self.labels
        return labels if labels is not None and labels.ndim == 1 and labels.dtype == np.int32 else None

    @property
    def split_keys(self) -> Iterable[str]:
        """The first texts: examples that share one stay together where a part is split off."""
        return self.texts

    def first_texts(self, count: int) -> Examples:
        """The first examples, at most `count`."""
        return self.select(range(min(len(self), count)))

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


def evenly(count: int, most: int) -> np.ndarray:
    """At most `most` of the indices below `count`, ascending, as far apart as they can be."""
    taken = min(count, most)
    return np.arange(taken) * count // taken
