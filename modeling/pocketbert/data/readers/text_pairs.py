"""Text pairs for encoders that read one text at a time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.rows import RowProblems
from pocketbert.data.readers.tables import column_values
from pocketbert.errors import UserError
from pocketbert.notation import argument

# How often a text's partner is the nearest, or among the ten nearest.
RECALL_METRICS = ("recall_at_1", "recall_at_10")


def texts_per_example(data: Examples) -> int:
    """Returns the number of texts per example: 1, 2 for pairs, 3 with negatives."""
    return 1 + (data.pairs is not None) + (data.negatives is not None)


def single_texts(data: Examples, prompt: str = "") -> Examples:
    """Returns the texts in pairs or triplets one by one, example after example."""
    columns = [column for column in (data.texts, data.pairs, data.negatives) if column is not None]
    texts = [text for example in zip(*columns, strict=True) for text in example]
    ids = data.ids
    if len(columns) > 1:
        ids = [f"{example_id}-{side}" for example_id in data.ids for side in range(1, len(columns) + 1)]
    return Examples([prompt + text for text in texts], None, None, ids, data.source)


def with_negatives(
    data: Examples, column: str | None, separator: str = ",", *, skip_bad_rows: bool = False
) -> Examples:
    """Adds a negative text to each positive pair.

    Args:
      data: pairs from a file.
      column: negative text column; None for no negatives.
      separator: see `read_table`.
      skip_bad_rows: skip pairs without a negative text, and log their number.
    Raises:
      UserError: pairs with scores, a missing column, or an empty text; lists the lines.
    """
    if column is None:
        return data
    if not is_positive(data):
        named = argument("negative_column", column, python=f"negative={column!r}")
        raise UserError(f"{named} is for pairs that belong together; received pairs with scores; leave one of them out")
    cells = column_values(data.source, column, separator)
    problems = RowProblems(Path(data.source), "line")
    for line in data.ids:
        if not cells[line].strip():
            problems.add(int(line), f"column {column!r} is empty; every row must have a text")
    complete = [index for index, line in enumerate(data.ids) if cells[line].strip()]
    if not skip_bad_rows or not complete:
        problems.raise_if_any()
    if len(problems):
        problems.log_skipped(len(data))
    rows = data.select(complete)
    skipped = data.skipped_rows + len(problems)
    return dataclasses.replace(rows, negatives=[cells[line] for line in rows.ids], skipped_rows=skipped)


def positive_pairs(data: Examples) -> Examples:
    """Gives positive pairs, without scores, the integer label 1."""
    if data.labels is not None or data.pairs is None:
        return data
    return dataclasses.replace(data, labels=np.ones(len(data), np.int32))


def text_numbers(data: Examples) -> np.ndarray:
    """Numbers the texts from `single_texts`, int32; equal texts have equal numbers."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in single_texts(data).texts], np.int32)


def is_positive(data: Examples) -> bool:
    """Returns whether the examples are positive pairs."""
    return data.labels is not None and data.labels.dtype == np.int32


def scaled_scores(data: Examples, largest: float = 1.0) -> Examples:
    """Divides scores by `largest`, for cosine targets. Raises `UserError` if it is not positive, or exceeded."""
    if not 0 < largest < float("inf"):
        raise UserError(f"{argument('max_score')} must be positive; received {largest:g}")
    if data.labels is None or is_positive(data):
        return data
    scores = (data.labels / largest).astype(np.float32)
    worst = float(data.labels[np.abs(scores).argmax()])
    if abs(worst) > largest:
        raise UserError(
            f"{data.source}: scores must lie in -{largest:g} to {largest:g}, for cosines of -1 to 1; "
            f"received {worst:g}; give the largest possible score as {argument('max_score')}"
        )
    return dataclasses.replace(data, labels=scores)
