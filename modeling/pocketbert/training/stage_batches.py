"""Batches for a stage by epoch: token ids, labels and cached teacher targets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

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

# More epochs than any stage has. The masks' random state counts epochs over all stages, in an int32.
_EPOCHS_A_STAGE = 1 << 16
# (batch size, epoch) → example indices for each step; only the last step may have fewer than a batch.
Order: TypeAlias = Callable[[int, int], list[np.ndarray]]
# (example indices for each step, epoch) → elements for `TrainingModel`, one per step.
Elements: TypeAlias = Callable[[Sequence[np.ndarray], int], tf.data.Dataset]


class StageBatches:
    """Batches for a stage. A step's examples and masks depend only on the epoch, so a run resumes at any step.

    Each replica gets an equal part of every batch. The last batch in an epoch drops examples that do not divide evenly.

    Attributes:
      count: examples.
      elements: makes the elements for some steps; see `Elements`.
      total_steps: steps, unless patience ends the stage early.
    Raises:
      UserError: the replicas cannot have equal parts.
    """

    def __init__(self, stage: Stage, count: int, order: Order, elements: Elements, replicas: int = 1) -> None:
        self._stage, self._order, self._replicas = stage, order, replicas
        self.count, self.elements = count, elements
        if stage.batch_size % replicas:
            raise UserError(
                f"stage {stage.name}: the batch size must be a multiple of the number of replicas; received "
                f"{stage.batch_size} examples for {replicas} replicas"
            )
        if count < replicas:
            raise UserError(
                f"stage {stage.name}: there must be an example for each replica; received {count} for {replicas}"
            )
        duration = stage.duration
        by_steps = isinstance(duration, Steps)
        steps: int = duration.count if by_steps else sum(len(self._pass(epoch)) for epoch in range(duration.count))
        self.total_steps = min(steps, stage.max_steps or steps)

    def epochs(self) -> int:
        """Counts epochs until the stage ends."""
        if self._stage.evaluations is not None:
            return min(self._stage.evaluations, self.total_steps)
        steps = itertools.accumulate(len(self._pass(epoch)) for epoch in itertools.count())
        return 1 + sum(1 for _ in itertools.takewhile(lambda count: count < self.total_steps, steps))

    def rows(self, epoch: int) -> list[np.ndarray]:
        """Returns example indices per step, for an epoch or, with `Stage.evaluations`, until the next evaluation."""
        if self._stage.evaluations is None:
            return self._pass(epoch)
        count = min(self._stage.evaluations, self.total_steps)
        first, behind = (number * self.total_steps // count for number in (epoch, epoch + 1))
        passes = (self._pass(number) for number in itertools.count())
        return list(itertools.islice(itertools.chain.from_iterable(passes), first, behind))

    def _pass(self, epoch: int) -> list[np.ndarray]:
        rows = self._order(self._stage.batch_size, epoch)
        shared = (row[: len(row) - len(row) % self._replicas] for row in rows)
        return [row for row in shared if len(row)]

    def first(self, batches: int, batch_size: int) -> Iterator[Batch]:
        """Yields at most `batches` batches from the start of the first epoch, without cached targets."""
        rows = self._order(min(batch_size, self.count), 0)[:batches]
        for batch in self.elements(rows, 0):
            yield batch[0] if isinstance(batch, tuple) else batch


def encoded_batches(
    stage: Stage,
    encoded: EncodedExamples,
    seed: int,
    replicas: int = 1,
    *,
    masks: Tokenizer | None = None,
    whole_words: bool = False,
    cache: TeacherCache | None = None,
) -> StageBatches:
    """Makes batches from examples in memory: a task's, or packed text.

    Args:
      stage: the stage.
      encoded: the examples.
      seed: seed for order and masks.
      replicas: number of replicas.
      masks: tokenizer for masking examples anew in each epoch, as in BERT's pretraining; None for no masks. For the
        term `masked_lm`, batches have positions and labels of the masked tokens.
      whole_words: mask whole words instead of tokens.
      cache: cached teacher targets for the examples; None for a live teacher or no teacher.
    """
    lengths = encoded.lengths

    def order(batch_size: int, epoch: int) -> list[np.ndarray]:
        return plan_batches(lengths, batch_size=batch_size, seed=seed, epoch=epoch)

    def elements(rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        if cache is not None:
            return cache.dataset(encoded, rows)
        if masks is not None:
            from pocketbert.data.pretraining.masking import masked_dataset
            from pocketbert.data.pretraining.options import MaskingOptions

            options = MaskingOptions.of_length(encoded.max_length, whole_words=whole_words)
            predicts = "masked_lm" in stage.weights
            batches = masked_dataset(
                encoded, rows, masks, seed=seed, epoch=epoch, options=options, predictions=predicts
            )
            return batches.map(lambda inputs, labels: {**inputs, "masked_lm_labels": labels}) if predicts else batches
        batches = dataset(encoded, rows)
        if encoded.labels is None:
            return batches
        return batches.map(lambda inputs, labels: {**inputs, "labels": labels})

    return StageBatches(stage, len(lengths), order, elements, replicas)


def pretraining_batches(
    stage: Stage, data: PretrainingData, seed: int, replicas: int = 1, *, index: int = 0, whole_words: bool = False
) -> StageBatches:
    """Makes batches from pretraining examples.

    Args:
      stage: the stage.
      data: the examples.
      seed: seed for order and masks.
      replicas: number of replicas.
      index: the stage's number in the run, from 0. Stages shorter than an epoch read different examples.
      whole_words: mask whole words instead of tokens, unless masks are baked in.
    """
    from pocketbert.data.pretraining.options import MaskingOptions

    masking, first_epoch = MaskingOptions.of_length(data.max_length, whole_words=whole_words), index * _EPOCHS_A_STAGE

    def order(batch_size: int, epoch: int) -> list[np.ndarray]:
        return data.plan(batch_size=batch_size, seed=seed, epoch=first_epoch + epoch)

    def elements(rows: Sequence[np.ndarray], epoch: int) -> tf.data.Dataset:
        return data.dataset(list(rows), seed=seed, epoch=first_epoch + epoch, masking=masking)

    return StageBatches(stage, len(data), order, elements, replicas)
