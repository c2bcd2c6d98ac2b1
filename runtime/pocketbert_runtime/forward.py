"""Calls that run token rows through a network, and their collected outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.progress import bar
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm

# A head's outputs by its own names: [N, ...], or [T, ...] for outputs per token, concatenated without padding.
Outputs: TypeAlias = Mapping[str, np.ndarray]


class Forward(Protocol):
    """Runs token rows through a float model or a bundle."""

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns outputs for at least one row; `show_progress` prints to stderr."""


class GatheredOutputs:
    """Collects batch outputs in example order.

    Args:
      encoded: the rows.
      task: the outputs' task.
    Attributes:
      outputs: by name: [N, ...], or [T, ...] per token, unpadded. An example with several rows has its first row's.
    """

    def __init__(self, encoded: TokenRows, task: TaskForm) -> None:
        self.outputs: dict[str, np.ndarray] = {}
        self._offsets, self._task = encoded.offsets, task
        self._count, self._rows = len(encoded), encoded.rows_per_example

    def add(self, indices: np.ndarray, outputs: Outputs) -> None:
        """Adds outputs for the examples at `indices`: their rows [B, ...], or [B, L, ...] with padding."""
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
    """Yields a function to advance a progress bar; it does nothing unless `show`."""
    if not show:
        yield lambda done: None
        return
    with bar(count, "predict", "row") as progress:
        yield progress.update


def check_finite_answers(outputs: Outputs) -> Outputs:
    """Returns a trained model's outputs; raises `UserError` if a value is NaN or infinite."""
    if not all(np.isfinite(output).all() for output in outputs.values()):
        raise UserError(
            "a model's answers must be finite; received NaN or infinity; its weights are damaged, or its training "
            "diverged: fine-tune it again, and export it again"
        )
    return outputs
