"""Mean label loss on a dev split, from the outputs for its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.tasks.base import Task
from pocketbert.tasks.interfaces import Evaluator
from pocketbert.tasks.parts import part_labels, weighted_sum
from pocketbert_runtime.answers.several import part_outputs
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.rows import TokenRows

if TYPE_CHECKING:
    from pocketbert.tasks.mistakes import Mistake
    from pocketbert.tasks.scores import Scores


class KeptOutputs:
    """Runs rows through a network and keeps the outputs.

    Attributes:
      outputs: outputs from each call since the last `clear`.
      encoded: rows in each of these calls.
    """

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self.outputs: list[Outputs] = []
        self.encoded: list[TokenRows] = []

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        self.encoded.append(encoded)
        self.outputs.append(self._forward(encoded, show_progress=show_progress))
        return self.outputs[-1]

    def clear(self) -> None:
        """Forgets all outputs."""
        self.outputs, self.encoded = [], []


class LossEvaluator:
    """A task's evaluator that also computes the mean label loss."""

    def __init__(
        self,
        evaluator: Evaluator,
        task: Task,
        forward: KeptOutputs,
        labelled: Callable[[], EncodedExamples],
        batch_size: int,
    ) -> None:
        self._evaluator, self._task, self._forward = evaluator, task, forward
        self._labelled, self._batch_size = labelled, batch_size
        self._encoded: EncodedExamples | None = None

    def metrics(self, when: str) -> dict[str, float]:
        """See `Evaluator.metrics`."""
        self._forward.clear()
        return self._evaluator.metrics(when)

    def temperature(self) -> float:
        """Returns the divisor with the smallest loss for the last logits; 1 for tasks without one."""
        fitted = getattr(self._evaluator, "temperature", None)
        return 1.0 if fitted is None else fitted()

    def task_at(self, temperature: float) -> TaskConfig:
        """Returns `task` with thresholds for the last logits divided by a temperature."""
        chosen = getattr(self._evaluator, "task_at", None)
        return self.task if chosen is None else chosen(temperature)

    def mistakes(self) -> list[Mistake]:
        """See `Evaluator.mistakes`."""
        return self._evaluator.mistakes()

    @property
    def top_probability(self) -> float | None:
        """Mean probability of the best class in the last evaluation; None for tasks without classes."""
        return getattr(self._evaluator, "top_probability", None)

    @property
    def loss(self) -> float | None:
        """Mean label loss in the last evaluation; None before one."""
        calls = self._forward.outputs
        if not calls:
            return None
        outputs = {name: np.concatenate([call[name] for call in calls]) for name in calls[0]}
        return mean_loss(self._task, self.encoded, outputs, self._batch_size)

    @property
    def encoded(self) -> EncodedExamples:
        """The dev split's rows with labels, encoded on first use."""
        if self._encoded is None:
            rows = self._forward.encoded[0] if len(self._forward.encoded) == 1 else None
            if isinstance(rows, EncodedExamples) and rows.labels is not None:
                self._encoded = rows
            else:
                self._encoded = self._labelled()
        return self._encoded

    @property
    def task(self) -> TaskConfig:
        """See `Evaluator`."""
        return self._evaluator.task

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """See `Evaluator.scores`."""
        self._forward.clear()
        return self._evaluator.scores(main_metric, metrics)


def mean_loss(task: Task, encoded: EncodedExamples, outputs: Mapping[str, np.ndarray], batch_size: int) -> float:
    """Computes the mean loss over the labels in all rows or separate pairs; for several heads, the weighted sum."""
    import tensorflow as tf

    from pocketbert.layers.loss_normalization import count_weights

    assert encoded.labels is not None
    if task.parts:
        of_heads = {name: values.numpy() for name, values in part_labels(task, encoded.labels).items()}
        means = {
            name: mean_loss(part, encoded.with_labels(of_heads[name]), part_outputs(name, outputs), batch_size)
            for name, part in task.parts.items()
        }
        return float(weighted_sum(task, means))
    labels, lengths = encoded.labels, np.diff(encoded.offsets)
    if task.separates_pairs:
        # The outputs have an entry for each pair.
        labels, lengths = labels[:: encoded.rows_per_example], encoded.lengths
    # Pairs are two rows and triplets three, even where an evaluator reads them one by one.
    together = 3 if labels.ndim == 2 else 2
    step = batch_size * (together if task.has_vectors else 1)
    total = weight = 0.0
    for start in range(0, len(lengths), step):
        rows = slice(start, start + step)
        mask = (np.arange(lengths[rows].max()) < lengths[rows, np.newaxis]).astype(np.int32)
        tokens = slice(encoded.offsets[start], encoded.offsets[min(start + step, len(lengths))])
        batch = {}
        for name, values in outputs.items():
            batch[name] = values[rows]
            if task.per_token:
                batch[name] = np.zeros((*mask.shape, *values.shape[1:]), values.dtype)
                batch[name][mask == 1] = values[tokens]
        arrays = {name: tf.constant(values, tf.float32) for name, values in batch.items()}
        with count_weights() as counted:
            loss = float(task.loss(arrays, tf.constant(labels[rows]), tf.constant(mask)))
        count = float(counted[0]) if len(counted) == 1 else len(mask)
        total, weight = total + loss * count, weight + count
    return total / weight if weight else 0.0
