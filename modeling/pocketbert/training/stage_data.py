"""A stage's data as batches: which examples each step takes, and their tokens, labels and cached targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.masking import masked_dataset
from pocketbert.data.pretraining_options import MaskingOptions
from pocketbert.data.teacher_cache import TeacherCache
from pocketbert.errors import UserError
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training.objective import Batch
from pocketbert.training.stage import Stage, Steps

if TYPE_CHECKING:
    from pocketbert.data.pretraining_data import PretrainingData

# More than a stage has; masks are drawn from an int32.
_EPOCHS_A_STAGE = 1 << 16


class Source(Protocol):
    """Where a stage's examples come from; its order and its masks depend on seed and epoch alone."""

    def __len__(self) -> int:
        """How many examples there are."""

    def plan(self, batch_size: int, epoch: int) -> list[np.ndarray]:
        """The examples of each step of an epoch; only the last step may have fewer than `batch_size`."""

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """What `TrainingModel` takes, a batch for each array of examples."""


class EncodedSource:
    """Examples in memory: a task's, or packed text; with the teacher's cached targets where there are any.

    Args:
      encoded: the examples.
      seed: of order and masks.
      masks: the tokenizer that encoded them, where they are masked anew in each epoch, as BERT masks examples of
        their length; else None.
      cache: the teacher's targets for them; None for a live teacher, or none.
    """

    def __init__(
        self,
        encoded: EncodedExamples,
        seed: int,
        *,
        masks: WordPieceTokenizer | None = None,
        cache: TeacherCache | None = None,
    ) -> None:
        self._encoded, self._seed, self._masks, self._cache = encoded, seed, masks, cache

    def __len__(self) -> int:
        return len(self._encoded)

    def plan(self, batch_size: int, epoch: int) -> list[np.ndarray]:
        """As `Source`."""
        return plan_batches(self._encoded.lengths, batch_size=batch_size, seed=self._seed, epoch=epoch)

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """As `Source`."""
        if self._cache is not None:
            return self._cache.dataset(self._encoded, rows)
        if self._masks is not None:
            options = MaskingOptions.of_length(self._encoded.max_length)
            return masked_dataset(self._encoded, rows, self._masks, seed=self._seed, epoch=epoch, options=options)
        batches = dataset(self._encoded, rows)
        if self._encoded.labels is None:
            return batches
        return batches.map(lambda inputs, labels: {**inputs, "labels": labels})


class PretrainingSource:
    """Pretraining examples, from the files of `pocketbert pretrain-data`.

    Args:
      data: the files.
      seed: of order and masks.
      stage: the stage's number in the run, from 0. A short stage sees a part of the data; each sees another.
      whole_words: mask whole words, not tokens, where masks are not baked in.
    """

    def __init__(self, data: PretrainingData, seed: int, stage: int = 0, *, whole_words: bool = False) -> None:
        self._data, self._seed = data, seed
        self._masking = MaskingOptions.of_length(data.max_length, whole_words=whole_words)
        self._first_epoch = stage * _EPOCHS_A_STAGE

    def __len__(self) -> int:
        return len(self._data)

    def plan(self, batch_size: int, epoch: int) -> list[np.ndarray]:
        """As `Source`; every step has `batch_size` examples."""
        return self._data.plan(batch_size=batch_size, seed=self._seed, epoch=self._first_epoch + epoch)

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """As `Source`."""
        epoch += self._first_epoch
        return self._data.dataset(list(rows), seed=self._seed, epoch=epoch, masking=self._masking)


class StageData:
    """A stage's steps.

    Each replica takes an equal part of a step's examples. Of an epoch's last step, which may have fewer than a whole
    batch, those are left out that cannot be shared out equally: fewer than there are replicas.

    Args:
      stage: says how many examples a step has, and how long the stage is.
      source: the examples.
      replicas: how many there are.

    Raises:
      UserError: the examples cannot be shared out equally.
    """

    def __init__(self, stage: Stage, source: Source, replicas: int = 1) -> None:
        self._stage, self._source, self._replicas = stage, source, replicas
        if stage.batch_size % replicas:
            raise UserError(
                f"stage {stage.name}: the batch size must be a multiple of the number of replicas; received "
                f"{stage.batch_size} examples for {replicas} replicas"
            )
        if len(source) < replicas:
            raise UserError(
                f"stage {stage.name}: there must be an example for each replica; received {len(source)} for {replicas}"
            )
        by_steps = isinstance(stage.duration, Steps)
        count = stage.duration.count
        self.total_steps: int = count if by_steps else sum(len(self.plan(epoch)) for epoch in range(count))

    def __len__(self) -> int:
        return len(self._source)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The examples of each step of an epoch."""
        rows = self._source.plan(self._stage.batch_size, epoch)
        shared = (row[: len(row) - len(row) % self._replicas] for row in rows)
        return [row for row in shared if len(row)]

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """What `TrainingModel` takes, a batch for each array of examples."""
        return self._source.batches(rows, epoch)

    def some(self, batches: int, batch_size: int) -> Iterator[Batch]:
        """So many batches at most of the first epoch's examples, always the same, without cached targets."""
        rows = self._source.plan(min(batch_size, len(self)), 0)[:batches]
        for batch in self._source.batches(rows, 0):
            yield batch[0] if isinstance(batch, tuple) else batch
