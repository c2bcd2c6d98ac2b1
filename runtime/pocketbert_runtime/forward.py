"""What runs rows of tokens through a network, and the outputs that it collects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.progress import bar
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm

# Outputs of a head by its own names: [N, ...], or [T, ...] for outputs per token, concatenated without padding.
Outputs: TypeAlias = Mapping[str, np.ndarray]


class Forward(Protocol):
    """Runs token rows through a float model or a bundle."""

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns the outputs of at least one row; `show_progress` prints to stderr."""


class GatheredOutputs:
    """Collects the outputs of batches in the order of the examples.

    Args:
      encoded: the rows.
      task: the task of the outputs.

    Attributes:
      outputs: collected outputs by name: [N, ...], or [T, ...] per token without padding. An example of several rows,
        such as a separate pair, has those of its first row.
    """

    def __init__(self, encoded: TokenRows, task: TaskForm) -> None:
        self.outputs: dict[str, np.ndarray] = {}
        self._offsets, self._task = encoded.offsets, task
        self._count, self._rows = len(encoded), encoded.rows_per_example

    def add(self, indices: np.ndarray, outputs: Outputs) -> None:
        """Adds the outputs of the rows of the examples at `indices`: [B, ...], or [B, L, ...] with padding."""
        for name, rows in outputs.items():
            gathered, values = self.outputs.get(name), rows[:: self._rows]
            per_token = self._task.of_output(name).per_token
            if gathered is None:
                count, sizes = self._count, values.shape[1:]
                if per_token:
                    count, sizes = int(self._offsets[-1]), values.shape[2:]
                gathered = self.outputs[name] = np.empty((count, *sizes), values.dtype)
            if not per_token:
                gathered[indices] = values
                continue
            for index, row in zip(indices, values, strict=True):
                first, last = self._offsets[index], self._offsets[index + 1]
                gathered[first:last] = row[: last - first]


@contextlib.contextmanager
def row_progress(count: int, show: bool) -> Iterator[Callable[[int], Any]]:
    """Yields a function that advances a progress bar, or does nothing unless `show`."""
    if not show:
        yield lambda done: None
        return
    with bar(count, "predict", "row") as progress:
        yield progress.update


def check_finite_answers(outputs: Outputs) -> Outputs:
    """Returns the outputs of a trained model if all are finite.

    Raises:
      UserError: a value is NaN or infinite.
    """
    if not all(np.isfinite(output).all() for output in outputs.values()):
        raise UserError(
            "a model's answers must be finite; received NaN or infinity; its weights are damaged, or its training "
            "diverged: fine-tune it again, and export it again"
        )
    return outputs
