"""Texts that several heads answer, with the labels of each head."""

from __future__ import annotations

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
    """Texts with labels for each of several heads.

    Attributes:
      parts: by head, the texts with its labels: the same texts in the same order for all.
      ids: unique names of the texts.
      skipped_rows: number of unreadable rows skipped in the file.
    """

    parts: Mapping[str, Examples | TaggedTexts]
    ids: Sequence[str]
    skipped_rows: int = 0

    unit: ClassVar[str] = "texts"

    def __post_init__(self) -> None:
        for name, part in self.parts.items():
            if part.texts != self.texts or len(part) != len(self.ids):
                raise ValueError(f"all heads must have the same texts; those of {name} differ")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<SharedTexts {len(self)} texts for {', '.join(self.parts)} of {self.source}>"

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return next(iter(self.parts.values())).texts

    @property
    def source(self) -> str:
        """See `LabelledData`."""
        return next(iter(self.parts.values())).source

    @property
    def identity(self) -> str:
        """SHA-256 of the names of the heads and of their texts and labels."""
        parts = [[name, part.identity] for name, part in self.parts.items()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def labelled(self) -> bool:
        """Whether the texts have labels for all heads."""
        return all(part.labelled for part in self.parts.values())

    @property
    def missing_labels(self) -> str:
        """Names the missing labels for a message."""
        missing = " and ".join(name for name, part in self.parts.items() if not part.labelled)
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
        """The texts; those with the same text stay in the same split."""
        return self.texts

    @property
    def classes(self) -> np.ndarray | None:
        """The classes of the first head that has some, so that a dev split has the same fraction of each."""
        return next((part.classes for part in self.parts.values() if part.classes is not None), None)

    @property
    def label_sets(self) -> None:
        """None: see `Examples.label_sets`; heads have labels of their own."""
        return None

    @property
    def answers(self) -> list[tuple[Any, ...]] | None:
        """The labels for all heads of each text."""
        answers = [part.answers for part in self.parts.values()]
        return [*zip(*(part for part in answers if part is not None), strict=True)] if self.labelled else None

    def label_counts(self, labels: Sequence[str]) -> dict[str, int]:
        """None: each head has labels of its own."""
        return {}

    def select(self, indices: Any) -> SharedTexts:
        """The texts at `indices`, in this order, without repetition."""
        chosen = [int(index) for index in indices]
        parts = {name: part.select(chosen) for name, part in self.parts.items()}
        return SharedTexts(parts, [self.ids[index] for index in chosen])

    def first_texts(self, count: int) -> Examples:
        """Up to `count` texts from the beginning, without labels."""
        texts = self.texts[:count]
        return Examples(texts, None, None, list(self.ids[:count]), self.source)
