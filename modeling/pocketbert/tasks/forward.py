"""Rows of tokens through a network, and its outputs back in the rows' order, without padding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.progress import bar
from pocketbert.tasks.base import Outputs, Task
from pocketbert.tasks.heads import output_names

# Rows that a float model answers at once.
BATCH_SIZE = 32


class ModelForward:
    """A float model's first head; rows of about the same length are answered together. It is traced once.

    Args:
      model: a `pocketbert.Model` with a head; its weights may change between calls.
      task: the head's.
      batch_size: rows a call of the model.
    """

    def __init__(self, model: Any, task: Task, batch_size: int = BATCH_SIZE) -> None:
        # An output goes by the head's name too where several heads give one of that name.
        names = next(iter(output_names(model.heads).values()))

        def answer(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            outputs = model(inputs, training=False)
            return {own: outputs[name] for own, name in names.items()}

        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}
        self._call = tf.function(answer, input_signature=[signature], autograph=False)
        self._task, self._batch_size = task, batch_size

    def __call__(self, encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        """The outputs of at least one row, by the head's own names for them."""
        plan = plan_batches(encoded.lengths, batch_size=self._batch_size, seed=0, epoch=0, shuffle=False)
        gathered = GatheredOutputs(encoded, self._task)
        with row_progress(len(encoded), show_progress) as update:
            for indices, inputs in zip(plan, dataset(encoded.unlabelled(), plan), strict=True):
                gathered.add(indices, {name: each.numpy() for name, each in self._call(inputs).items()})
                update(len(indices))
        return gathered.outputs


class GatheredOutputs:
    """Collects batches' outputs in the order of the rows.

    Args:
      encoded: the rows.
      task: says whether each token has an output.

    Attributes:
      outputs: what has been added, by name: [N, ...], or [T, ...] of each token without padding.
    """

    def __init__(self, encoded: EncodedExamples, task: Task) -> None:
        self.outputs: dict[str, np.ndarray] = {}
        self._offsets, self._per_token = encoded.offsets, task.per_token

    def add(self, indices: np.ndarray, outputs: Outputs) -> None:
        """Takes the outputs [B, ...], or [B, L, ...] with padding, of the rows at `indices`."""
        for name, values in outputs.items():
            found = self.outputs.get(name)
            if found is None:
                count, sizes = len(self._offsets) - 1, values.shape[1:]
                if self._per_token:
                    count, sizes = int(self._offsets[-1]), values.shape[2:]
                found = self.outputs[name] = np.empty((count, *sizes), values.dtype)
            if not self._per_token:
                found[indices] = values
                continue
            for index, row in zip(indices, values, strict=True):
                first, last = self._offsets[index], self._offsets[index + 1]
                found[first:last] = row[: last - first]


@contextlib.contextmanager
def row_progress(count: int, show: bool) -> Iterator[Callable[[int], Any]]:
    """Yields what counts rows on a bar, or does nothing."""
    if not show:
        yield lambda done: None
        return
    with bar(count, "predict", "row") as progress:
        yield progress.update


def check_finite_answers(outputs: Outputs) -> Outputs:
    """The outputs.

    Raises:
      UserError: one is NaN or infinite.
    """
    if not all(np.isfinite(each).all() for each in outputs.values()):
        raise UserError(
            "a model's answers must be finite; received NaN or infinity; its weights are damaged, or its training "
            "diverged: fine-tune it again, and export it again"
        )
    return outputs


def check_finite(when: str, outputs: Outputs) -> Outputs:
    """The outputs of a model in training.

    Args:
      when: for the error's message, for example `after step 7`.
      outputs: the model's.

    Raises:
      TrainingFailed: one of them is not finite.
    """
    if not all(np.isfinite(each).all() for each in outputs.values()):
        raise TrainingFailed(
            f"the outputs must stay finite; {when} some are not; try a lower learning rate, a longer warm-up, "
            "clipping, or float32"
        )
    return outputs
