"""Reads `pocketbert augment` output beside the original examples."""

from __future__ import annotations

import os
from typing import Any

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.tables import read_table
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info


def read_augmented(path: str | os.PathLike[str] | None, task: TaskConfig, train: Examples) -> Examples | None:
    """Reads `pocketbert augment` output for a data set: columns text, pair and label."""
    if path is None:
        return None
    kind: Any = task.kind
    pair = None if train.pairs is None else "pair"
    labels = task.labels or None
    return read_table(path, text_column="text", pair_column=pair, label_column="label", labels=labels, kind=kind)[0]


def without_examples(augmented: Examples, dropped: Examples, *, skip_bad_rows: bool) -> Examples:
    """Removes augmented rows with an original in `dropped`. Raises `UserError` if the file records no originals."""
    path = augmented.source
    try:
        of_rows, _ = read_table(path, text_column="example", skip_bad_rows=skip_bad_rows)
    except UserError as error:
        raise UserError(
            f"{path}: without {argument('dev')}, each row must have its original in the column 'example', as written "
            f"by pocketbert augment; received rows without; pass {argument('dev')}"
        ) from error
    # Compare texts too: the numbers may belong to another file.
    texts = set(dropped.texts)
    name_of = dict(zip(of_rows.ids, of_rows.texts, strict=True))
    origins = [name_of.get(row) for row in augmented.ids]
    named = {None, *dropped.ids, *(name for name, text in zip(origins, augmented.texts, strict=True) if text in texts)}
    others = [index for index, name in enumerate(origins) if name not in named]
    log_info(f"{path}: skipped {len(augmented) - len(others)} rows augmented from examples in the dev split")
    return augmented.select(others)
