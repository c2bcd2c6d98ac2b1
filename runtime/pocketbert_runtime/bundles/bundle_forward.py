"""Run tokenized rows through a bundle, each on the shortest signature that fits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from pocketbert_runtime.bundles.length_buckets import Inputs, bucket_by_length
from pocketbert_runtime.forward import GatheredOutputs, Outputs, row_progress
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm

Run: TypeAlias = Callable[[Inputs, int], Outputs]
# The examples of a batch with one length, and their outputs.
_Answers: TypeAlias = "list[tuple[np.ndarray, Outputs]]"

# Rows prepared at once, to bound the memory.
ROWS_A_CALL = 32


class BundleForward:
    """A bundle on LiteRT as a `Forward`. Each row runs on the shortest signature that fits.

    Args:
      run: runs the file; takes the inputs `[n, length]` and the length. Threads call it at the same time.
      lengths: the signatures' sequence lengths, ascending.
      pad_token_id: the padding token's id.
      task: the head's task.
      threads: number of batches that run at the same time.
    """

    def __init__(self, run: Run, lengths: Sequence[int], pad_token_id: int, task: TaskForm, threads: int = 1) -> None:
        self._run, self._lengths, self._pad_token_id, self._task = run, lengths, pad_token_id, task
        self._threads = threads

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns the outputs for one or more rows, by name."""
        gathered, count = GatheredOutputs(encoded, self._task), len(encoded)
        size = max(1, min(ROWS_A_CALL, -(-count // self._threads)))
        batches = [np.arange(first, min(first + size, count)) for first in range(0, count, size)]

        def answered(rows: np.ndarray) -> _Answers:
            buckets = bucket_by_length(encoded.inputs(rows), self._lengths, self._pad_token_id)
            return [(rows[bucket.indices], self._run(bucket.inputs, bucket.length)) for bucket in buckets]

        with row_progress(count, show_progress) as update, _mapped(answered, batches, self._threads) as answers:
            for rows, parts in zip(batches, answers, strict=True):
                for indices, outputs in parts:
                    gathered.add(indices, outputs)
                update(len(rows))
        return gathered.outputs


@contextlib.contextmanager
def _mapped(
    function: Callable[[np.ndarray], _Answers], batches: Sequence[np.ndarray], threads: int
) -> Iterator[Iterable[_Answers]]:
    """Yields the function's results in order; after an error or Ctrl-C, waiting batches do not run."""
    if threads == 1 or len(batches) == 1:
        yield map(function, batches)
        return
    executor = ThreadPoolExecutor(threads)
    try:
        yield executor.map(function, batches)
    finally:
        executor.shutdown(cancel_futures=True)
