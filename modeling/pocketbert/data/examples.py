"""Labelled texts in memory, as all readers return them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from pocketbert_runtime.answers.inputs import texts_and_pairs


class LabelledData(Protocol):
    """Common interface of `Examples` and `QuestionFile`, for trainers."""

    @property
    def source(self) -> str:
        """Source for messages, such as a path."""

    @property
    def identity(self) -> str:
        """SHA-256 over all content that affects a run."""

    @property
    def labelled(self) -> bool:
        """Whether all examples have labels."""

    @property
    def missing_labels(self) -> str:
        """Names the missing labels for a message."""

    @property
    def has_pairs(self) -> bool:
        """Whether an example is two texts."""

    @property
    def split_keys(self) -> Iterable[str]:
        """One text per example; examples with the same text stay in the same split."""

    @property
    def classes(self) -> np.ndarray | None:
        """int32 [N], or None if examples have no single class."""

    @property
    def label_sets(self) -> np.ndarray | None:
        """0 or 1, int32 [N, labels], or None without multi-label data."""

    @property
    def unit(self) -> str:
        """Word for examples in messages: `texts` or `questions`."""

    @property
    def read_texts(self) -> Iterable[Hashable]:
        """Each example's network input."""

    @property
    def answers(self) -> Sequence[Any] | None:
        """Each example's label, for comparisons; None without labels, or if several answers are right."""

    def label_counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Counts the examples, or spans, with each label; empty for scores and questions."""

    def __len__(self) -> int: ...

    def select(self, indices: Any) -> Any:
        """Returns the examples at `indices`."""

    def first_texts(self, count: int) -> Examples:
        """Returns up to `count` examples without labels, as texts or pairs for a tokenizer."""


@dataclass(frozen=True, repr=False)
class Examples:
    """Texts with or without labels. Row i in each attribute belongs to example i.

    Attributes:
      texts: sentences, or the first sentence in each pair.
      pairs: second sentences, or None for single sentences.
      labels: int32 `[N]` class indices, float32 `[N]` scores, int32 `[N, labels]` with 0 and 1, or None.
      ids: unique example names.
      source: path or data set name, for messages and records.
      groups: each example's group for metrics by group, such as a language, or None.
      skipped_rows: number of unreadable rows skipped in the file.
      soft_labels: float64 `[N, labels]`, a teacher's probabilities, for distillation; or None.
      negatives: hard negatives for positive pairs: a text per pair, near the first one but not its partner; or None.
      has_likely_labels: whether the labels are only the most likely soft labels.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: np.ndarray | None
    ids: list[str]
    source: str
    groups: list[str] | None = None
    skipped_rows: int = 0
    soft_labels: np.ndarray | None = None
    negatives: list[str] | None = None
    has_likely_labels: bool = False

    def __post_init__(self) -> None:
        count = len(self.texts)
        for name in ("pairs", "labels", "ids", "groups", "soft_labels", "negatives"):
            part = getattr(self, name)
            if part is not None and len(part) != count:
                raise ValueError(f"{name} must be as many as texts; received {len(part)} and {count}")
        forms = ((np.int32, 1), (np.float32, 1), (np.int32, 2))
        if self.labels is not None and (self.labels.dtype, self.labels.ndim) not in forms:
            raise ValueError(
                "labels must be int32 [N], float32 [N] or int32 [N, labels]; received "
                f"{self.labels.dtype} {self.labels.shape}"
            )
        if self.labels is not None:
            # A loss would leave these examples out.
            whole = self.labels.dtype.kind == "i"
            wrong = self.labels[self.labels < 0 if whole else ~np.isfinite(self.labels)]
            if wrong.size:
                form = "indices from 0, or 0 and 1" if whole else "finite scores"
                raise ValueError(f"labels must be {form}; received {wrong[0]}")
        if len(set(self.ids)) != count:
            raise ValueError(f"ids must be unique; received {count - len(set(self.ids))} repeated")

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        unit = "texts" if self.pairs is None else "pairs"
        form = "without labels"
        if self.labels is not None and self.labels.ndim == 2:
            form = f"with {self.labels.shape[1]} labels each"
        elif self.labels is not None:
            classes = "scores" if self.classes is None else f"{len(set(self.labels.tolist()))} classes"
            form = f"with {classes}"
        return f"<Examples {len(self)} {unit} {form} of {self.source}>"

    unit: ClassVar[str] = "texts"

    @property
    def read_texts(self) -> Iterable[Hashable]:
        """Texts, or text pairs."""
        return self.texts if self.pairs is None else zip(self.texts, self.pairs, strict=True)

    @property
    def answers(self) -> list[Any] | None:
        """The labels."""
        return None if self.labels is None else self.labels.tolist()

    def label_counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Counts the examples with each label; empty for scores."""
        if self.labels is None or not labels or self.labels.dtype != np.int32:
            return {}
        in_classes = self.labels.ndim == 1
        counts = np.bincount(self.labels, minlength=len(labels)) if in_classes else self.labels.sum(axis=0)
        return dict(zip(labels, counts.tolist(), strict=True))

    @property
    def identity(self) -> str:
        """SHA-256 over texts, labels, groups, soft labels and negatives."""
        digest = hashlib.sha256()
        for part in (self.texts, self.pairs):
            digest.update(json.dumps(part).encode())
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        if self.groups is not None:
            digest.update(json.dumps(self.groups).encode())
        if self.soft_labels is not None:
            digest.update(self.soft_labels.tobytes())
        if self.negatives is not None:
            digest.update(json.dumps(self.negatives).encode())
        return digest.hexdigest()

    @property
    def labelled(self) -> bool:
        """Whether the examples have labels."""
        return self.labels is not None

    @property
    def missing_labels(self) -> str:
        """Names the missing labels for a message."""
        return f"labels; {self.source} has none"

    @property
    def has_pairs(self) -> bool:
        """Whether the examples are pairs."""
        return self.pairs is not None

    @property
    def classes(self) -> np.ndarray | None:
        """The labels if each example has one class, else None."""
        labels = self.labels
        return labels if labels is not None and labels.ndim == 1 and labels.dtype == np.int32 else None

    @property
    def label_sets(self) -> np.ndarray | None:
        """The labels if each example has any number of them, else None."""
        return self.labels if self.labels is not None and self.labels.ndim == 2 else None

    @property
    def split_keys(self) -> Iterable[str]:
        """The first texts; examples with the same one stay in the same split."""
        return self.texts

    def first_texts(self, count: int) -> Examples:
        """Returns up to `count` examples from the beginning."""
        return self.select(range(min(len(self), count)))

    def select(self, indices: Sequence[int] | np.ndarray) -> Examples:
        """Returns the examples at `indices`, in this order. Indices must not repeat."""
        chosen = [int(index) for index in indices]
        return Examples(
            texts=[self.texts[index] for index in chosen],
            pairs=None if self.pairs is None else [self.pairs[index] for index in chosen],
            labels=None if self.labels is None else self.labels[np.asarray(chosen, np.int64)],
            ids=[self.ids[index] for index in chosen],
            source=self.source,
            groups=None if self.groups is None else [self.groups[index] for index in chosen],
            soft_labels=None if self.soft_labels is None else self.soft_labels[np.asarray(chosen, np.int64)],
            negatives=None if self.negatives is None else [self.negatives[index] for index in chosen],
            has_likely_labels=self.has_likely_labels,
        )


def examples_of(inputs: Sequence[Any]) -> Examples:
    """Converts inputs for `predict` to examples without labels."""
    texts, pairs = texts_and_pairs(inputs)
    return Examples(texts, pairs, None, [str(index) for index in range(len(texts))], "the texts")


def evenly(count: int, most: int) -> np.ndarray:
    """Returns up to `most` indices below `count`, ascending and evenly spaced."""
    taken = min(count, most)
    return np.arange(taken) * count // taken


def evenly_of_classes(data: LabelledData, most: int) -> np.ndarray:
    """Returns up to `most` example indices, ascending, with about the same share from each class.

    Evenly spaced indices could all have the same class if classes take turns in a file.
    """
    order = np.arange(len(data)) if data.classes is None else np.argsort(data.classes, kind="stable")
    return np.sort(order[evenly(len(data), most)])
