"""Texts that several heads answer, with each head's labels."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.tagged_texts import TaggedTexts


@dataclass(frozen=True, eq=False, repr=False)
class SharedTexts:
    """Texts with labels for one or more of several heads.

    Attributes:
      parts: head → texts with labels for it, and these labels.
      ids: unique names for all texts.
      skipped_rows: number of unreadable rows skipped in the file.
      rows: head → its texts' row numbers among all texts, int64, ascending; None if each head has all of them.
    """

    parts: Mapping[str, Examples | TaggedTexts]
    ids: Sequence[str]
    skipped_rows: int = 0
    rows: Mapping[str, np.ndarray] | None = None

    unit: ClassVar[str] = "texts"

    def __post_init__(self) -> None:
        if self.rows is not None and all(len(rows) == len(self.ids) for rows in self.rows.values()):
            object.__setattr__(self, "rows", None)
        texts = self.texts
        for name, part in self.parts.items():
            labelled = texts if self.rows is None else [texts[row] for row in self.rows[name]]
            if part.texts != labelled or len(texts) != len(self.ids):
                raise ValueError(f"all heads must have the same texts; those of {name} differ")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<SharedTexts {len(self)} texts for {', '.join(self.parts)} of {self.source}>"

    @functools.cached_property
    def texts(self) -> list[str]:
        """All texts."""
        if self.rows is None:
            return next(iter(self.parts.values())).texts
        by_row = {
            int(row): text
            for name, part in self.parts.items()
            for row, text in zip(self.rows[name], part.texts, strict=True)
        }
        return [by_row[row] for row in range(len(self.ids))]

    def rows_of(self, head: str) -> np.ndarray:
        """Returns the rows with labels for a head, int64, ascending."""
        return np.arange(len(self.ids)) if self.rows is None else self.rows[head]

    @property
    def sources(self) -> list[str]:
        """Table paths or names."""
        return list(dict.fromkeys(part.source for part in self.parts.values()))

    @property
    def source(self) -> str:
        """See `LabelledData`."""
        return " and ".join(self.sources)

    @property
    def identity(self) -> str:
        """SHA-256 over the heads' names, texts, labels and rows."""
        parts: list[list[Any]] = [[name, part.identity] for name, part in self.parts.items()]
        if self.rows is not None:
            parts += [[name, rows.tolist()] for name, rows in self.rows.items()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def labelled(self) -> bool:
        """Whether there are labels for all heads."""
        return not self._unlabelled_heads

    @property
    def _unlabelled_heads(self) -> list[str]:
        return [name for name, part in self.parts.items() if not part.labelled or not len(part)]

    @property
    def missing_labels(self) -> str:
        """Names the missing labels for a message."""
        missing = " and ".join(self._unlabelled_heads)
        return f"labels for {missing}; {self.source} has none"

    @property
    def has_pairs(self) -> bool:
        """False: an example is one text."""
        return False

    @property
    def read_texts(self) -> list[str]:
        """The texts."""
        return self.texts

    @property
    def split_keys(self) -> list[str]:
        """The texts; equal ones stay in the same split."""
        return self.texts

    @property
    def classes(self) -> np.ndarray | None:
        """Classes to stratify a dev split by, from the first head with any; None if heads label only some texts."""
        if self.rows is not None:
            return None
        return next((part.classes for part in self.parts.values() if part.classes is not None), None)

    @property
    def label_sets(self) -> None:
        """None: see `Examples.label_sets`; each head has its own labels."""
        return None

    @property
    def soft_labels(self) -> dict[str, Any] | None:
        """Head → a teacher's probabilities; None if a head has none."""
        soft = {name: part.soft_labels for name, part in self.parts.items()}
        return None if any(values is None for values in soft.values()) else soft

    @property
    def strata(self) -> np.ndarray:
        """Columns to stratify a dev split, 0 or 1, int32 [N, columns].

        The first columns say for each head whether a text has a label. The others are its classes or labels.
        """
        columns: list[list[np.ndarray]] = [[], []]
        for name, part in self.parts.items():
            of_head: list[np.ndarray] = [np.ones((len(part), 1), np.int32)]
            if part.classes is not None:
                of_head.append(np.eye(int(part.classes.max(initial=0)) + 1, dtype=np.int32)[part.classes])
            if part.label_sets is not None:
                of_head.append(part.label_sets)
            for kind, values in zip(columns, of_head, strict=False):
                spread = np.zeros((len(self), values.shape[1]), np.int32)
                spread[self.rows_of(name)] = values
                kind.append(spread)
        return np.concatenate([*columns[0], *columns[1]], axis=1)

    @property
    def answers(self) -> list[tuple[Any, ...]] | None:
        """Each text's labels for all heads; None for a head without."""
        if not self.labelled:
            return None
        answers: list[list[Any]] = []
        for name, part in self.parts.items():
            of_head: list[Any] = [None] * len(self)
            for row, answer in zip(self.rows_of(name), part.answers or (), strict=True):
                of_head[row] = answer
            answers.append(of_head)
        return [*zip(*answers, strict=True)]

    def label_counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Empty: each head has its own labels."""
        return {}

    def select(self, indices: Any) -> SharedTexts:
        """Returns the texts at `indices`, in this order. Indices must not repeat."""
        chosen = [int(index) for index in indices]
        ids = [self.ids[index] for index in chosen]
        if self.rows is None:
            return SharedTexts({name: part.select(chosen) for name, part in self.parts.items()}, ids)
        parts, rows = {}, {}
        for name, part in self.parts.items():
            places = {int(row): place for place, row in enumerate(self.rows[name])}
            rows[name] = np.array([row for row, index in enumerate(chosen) if index in places], np.int64)
            parts[name] = part.select([places[chosen[row]] for row in rows[name]])
        return SharedTexts(parts, ids, rows=rows)

    def of_source(self, source: str) -> SharedTexts:
        """Returns the same texts with another source."""
        parts = {name: dataclasses.replace(part, source=source) for name, part in self.parts.items()}
        return dataclasses.replace(self, parts=parts)

    def first_texts(self, count: int) -> Examples:
        """Returns up to `count` texts from the beginning, without labels."""
        texts = self.texts[:count]
        return Examples(texts, None, None, list(self.ids[:count]), self.source)
