"""Run tokenized rows through a bundle, each on the shortest signature that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.tasks.base import Task
from pocketbert.tasks.interfaces import Outputs
from pocketbert.tasks.outputs import GatheredOutputs, row_progress
from pocketbert_export.tflite.length_buckets import Inputs, bucket_by_length

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

    def __init__(self, run: Run, lengths: Sequence[int], pad_token_id: int, task: Task) -> None:
        self._run, self._lengths, self._pad_token_id, self._task = run, lengths, pad_token_id, task

    def __call__(self, encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        """Returns the outputs for one or more rows, by name."""
        gathered = GatheredOutputs(encoded, self._task)
        with row_progress(len(encoded), show_progress) as update:
            for first in range(0, len(encoded), ROWS_A_CALL):
                rows = np.arange(first, min(first + ROWS_A_CALL, len(encoded)))
                inputs, _ = encoded.batch(rows)
                for bucket in bucket_by_length(inputs, self._lengths, self._pad_token_id):
                    gathered.add(rows[bucket.indices], self._run(bucket.inputs, bucket.length))
                update(len(rows))
        return gathered.outputs
