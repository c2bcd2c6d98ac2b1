"""Batches of a stage: the examples of each step, with token ids, labels and cached teacher targets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.errors import UserError
from pocketbert.tokenizers.base import Tokenizer
from pocketbert.training.objective import Batch
from pocketbert.training.stage import Stage, Steps

if TYPE_CHECKING:
    from pocketbert.data.pretraining.reader import PretrainingData

# More epochs than any stage has; the random state of masks counts epochs of all stages in an int32.
_EPOCHS_A_STAGE = 1 << 16


class Source(Protocol):
    """Examples of a stage. Order and masks are functions of seed and epoch."""

    def __len__(self) -> int:
        """Number of examples."""

    def plan(self, batch_size: int, epoch: int) -> list[np.ndarray]:
        """Indices of the examples of each step in an epoch; only the last step may have fewer than `batch_size`."""

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """Elements for `TrainingModel`, one per array of indices."""


class EncodedSource:
    """Examples in memory, of a task or of packed text.

    Args:
      encoded: the examples.
      seed: seed of order and masks.
      masks: tokenizer of examples that get new masks in each epoch, as in BERT's pretraining; None for no masks.
      cache: cached teacher targets of the examples; None for a live teacher or no teacher.
    """

    def __init__(
        self,
        encoded: EncodedExamples,
        seed: int,
        *,
        masks: Tokenizer | None = None,
        cache: TeacherCache | None = None,
    ) -> None:
        self._encoded, self._seed, self._masks, self._cache = encoded, seed, masks, cache

    def __len__(self) -> int:
        return len(self._encoded)

    def plan(self, batch_size: int, epoch: int) -> list[np.ndarray]:
        """See `Source`."""
        return plan_batches(self._encoded.lengths, batch_size=batch_size, seed=self._seed, epoch=epoch)

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """See `Source`."""
        if self._cache is not None:
            return self._cache.dataset(self._encoded, rows)
        if self._masks is not None:
            from pocketbert.data.pretraining.masking import masked_dataset
            from pocketbert.data.pretraining.options import MaskingOptions

            options = MaskingOptions.of_length(self._encoded.max_length)
            return masked_dataset(self._encoded, rows, self._masks, seed=self._seed, epoch=epoch, options=options)
        batches = dataset(self._encoded, rows)
        if self._encoded.labels is None:
            return batches
        return batches.map(lambda inputs, labels: {**inputs, "labels": labels})


class PretrainingSource:
    """Pretraining examples of `pocketbert pretrain-data`.

    Args:
      data: the examples.
      seed: seed of order and masks.
      stage: number of the stage in the run, from 0. Stages that are shorter than an epoch read different examples.
      whole_words: mask whole words instead of tokens, unless masks are baked in.
    """

    def __init__(self, data: PretrainingData, seed: int, stage: int = 0, *, whole_words: bool = False) -> None:
        from pocketbert.data.pretraining.options import MaskingOptions

        self._data, self._seed = data, seed
        self._masking = MaskingOptions.of_length(data.max_length, whole_words=whole_words)
        self._first_epoch = stage * _EPOCHS_A_STAGE

    def __len__(self) -> int:
        return len(self._data)

    def plan(self, batch_size: int, epoch: int) -> list[np.ndarray]:
        """See `Source`; every step has `batch_size` examples."""
        return self._data.plan(batch_size=batch_size, seed=self._seed, epoch=self._first_epoch + epoch)

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """See `Source`."""
        epoch += self._first_epoch
        return self._data.dataset(list(rows), seed=self._seed, epoch=epoch, masking=self._masking)


class StageData:
    """Steps of a stage.

    Each replica gets an equal part of every batch. If the last batch of an epoch is not a multiple of the number of
    replicas, the remainder is dropped.

    Args:
      stage: gives batch size and duration.
      source: the examples.
      replicas: number of replicas.

    Attributes:
      total_steps: number of steps, unless patience ends the stage early.

    Raises:
      UserError: the replicas cannot have equal parts.
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
        self.total_steps: int = count if by_steps else sum(len(self._pass(epoch)) for epoch in range(count))

    def __len__(self) -> int:
        return len(self._source)

    def epochs(self) -> int:
        """Number of epochs until the stage ends."""
        if self._stage.evaluations is not None:
            return min(self._stage.evaluations, self.total_steps)
        steps = itertools.accumulate(len(self._pass(epoch)) for epoch in itertools.count())
        return 1 + sum(1 for _ in itertools.takewhile(lambda count: count < self.total_steps, steps))

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Examples of each step of an epoch, or up to the next evaluation if the stage sets `evaluations`."""
        if self._stage.evaluations is None:
            return self._pass(epoch)
        count = min(self._stage.evaluations, self.total_steps)
        first, behind = (number * self.total_steps // count for number in (epoch, epoch + 1))
        passes = (self._pass(number) for number in itertools.count())
        return list(itertools.islice(itertools.chain.from_iterable(passes), first, behind))

    def _pass(self, epoch: int) -> list[np.ndarray]:
        rows = self._source.plan(self._stage.batch_size, epoch)
        shared = (row[: len(row) - len(row) % self._replicas] for row in rows)
        return [row for row in shared if len(row)]

    def batches(self, rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        """Elements for `TrainingModel`, one per array of indices."""
        return self._source.batches(rows, epoch)

    def some(self, batches: int, batch_size: int) -> Iterator[Batch]:
        """At most `batches` batches from the start of the first epoch, without cached targets."""
        rows = self._source.plan(min(batch_size, len(self)), 0)[:batches]
        for batch in self._source.batches(rows, 0):
            yield batch[0] if isinstance(batch, tuple) else batch
