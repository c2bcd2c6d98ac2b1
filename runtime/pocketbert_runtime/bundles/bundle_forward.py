"""Run tokenized rows through a bundle, each on the shortest signature that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pocketbert_runtime.bundles.length_buckets import Inputs, bucket_by_length
from pocketbert_runtime.forward import GatheredOutputs, Outputs, row_progress
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm

Run: TypeAlias = Callable[[Inputs, int], Outputs]

# Rows prepared at once, to bound the memory.
ROWS_A_CALL = 32


class BundleForward:
    """A bundle on LiteRT as a `Forward`. Each row runs on the shortest signature that fits.

    Args:
      run: runs the file; takes the inputs `[n, length]` and the length.
      lengths: the signatures' sequence lengths, ascending.
      pad_token_id: the padding token's id.
      task: the head's task.
    """

    def __init__(self, run: Run, lengths: Sequence[int], pad_token_id: int, task: TaskForm) -> None:
        self._run, self._lengths, self._pad_token_id, self._task = run, lengths, pad_token_id, task

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns the outputs for one or more rows, by name."""
        gathered = GatheredOutputs(encoded, self._task)
        with row_progress(len(encoded), show_progress) as update:
            for first in range(0, len(encoded), ROWS_A_CALL):
                rows = np.arange(first, min(first + ROWS_A_CALL, len(encoded)))
                inputs = encoded.inputs(rows)
                for bucket in bucket_by_length(inputs, self._lengths, self._pad_token_id):
                    gathered.add(rows[bucket.indices], self._run(bucket.inputs, bucket.length))
                update(len(rows))
        return gathered.outputs
