"""Predictors of model directories and bundles."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.errors import UserError
from pocketbert.model import Model, from_pretrained
from pocketbert.tasks.base import Outputs, Task
from pocketbert.tasks.forward import GatheredOutputs, row_progress
from pocketbert.tasks.predictor import Predictor, fitting_windows, model_predictor, predicting_task
from pocketbert_export.bundle import BUNDLE_FILE, Bundle
from pocketbert_export.length_buckets import bucket_by_length

# Rows that are made ready for a bundle at once.
ROWS_A_CALL = 32


class BundleForward:
    """A bundle on LiteRT; each row goes to the shortest signature that holds it.

    Args:
      bundle: with a head.
      task: the head's.
    """

    def __init__(self, bundle: Bundle, task: Task) -> None:
        self._bundle, self._task = bundle, task

    def __call__(self, encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        """The outputs of at least one row, by name."""
        gathered = GatheredOutputs(encoded, self._task)
        lengths, pad_token_id = self._bundle.lengths, self._bundle.tokenizer().pad_token_id
        with row_progress(len(encoded), show_progress) as update:
            for first in range(0, len(encoded), ROWS_A_CALL):
                rows = np.arange(first, min(first + ROWS_A_CALL, len(encoded)))
                inputs, _ = encoded.batch(rows)
                for bucket in bucket_by_length(inputs, lengths, pad_token_id):
                    gathered.add(rows[bucket.indices], self._bundle.run(bucket.inputs, bucket.length))
                update(len(rows))
        return gathered.outputs


def bundle_predictor(bundle: Bundle, **windows: int | None) -> Predictor:
    """Predicts with a bundle.

    Args:
      bundle: with a supervised task.
      **windows: as for `model_predictor`; windows are as long as the longest signature.

    Raises:
      UserError: it has no such task, or a window that no signature holds.
    """
    task = predicting_task(bundle.task, str(bundle.directory))
    longest = max(bundle.lengths)
    room = f"the bundle's longest length, {longest}"
    max_length, windows = fitting_windows(task, windows, longest, longest, room)
    return Predictor(task, BundleForward(bundle, task), bundle.tokenizer(), max_length, **windows)


def open_predictor(path: str | os.PathLike[str], **windows: int | None) -> Predictor:
    """Opens a model directory or a bundle.

    Args:
      path: the folder.
      **windows: as for `model_predictor`.

    Raises:
      UserError: it is neither, is damaged, or has no task that predicts; or windows that do not fit.
    """
    opened = _open(path)
    if isinstance(opened, Bundle):
        return bundle_predictor(opened, **windows)
    return model_predictor(opened, str(path), **windows)


def open_both(
    model: str | os.PathLike[str], bundle: str | os.PathLike[str], **windows: int | None
) -> tuple[Predictor, Predictor]:
    """Opens a model directory and its bundle to be compared: both read paragraphs in the same windows.

    Args:
      model: the model directory.
      bundle: made from it; a window is as long as its longest length.
      **windows: as for `open_predictor`, but for the length.

    Raises:
      UserError: as there.
    """
    longest = max(Bundle.open(bundle).lengths)
    return (
        open_predictor(model, max_length=longest, **windows),
        open_predictor(bundle, max_length=longest, **windows),
    )


def _open(path: str | os.PathLike[str]) -> Model | Bundle:
    folder = Path(path)
    if (folder / BUNDLE_FILE).exists():
        return Bundle.open(folder)
    if (folder / "config.json").exists():
        return from_pretrained(folder)
    raise UserError(
        f"a model must be a folder with {BUNDLE_FILE} (a bundle) or config.json (a model directory); received {path}; "
        "pocketbert finetune makes the one, pocketbert export the other"
    )
