"""Soft labels: any teacher's probabilities, in table columns or as `probabilities` in a JSONL file."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.rows import RowProblems, json_object, listed, parse_score, shown
from pocketbert.data.readers.table_objects import column_names, name_of, object_rows
from pocketbert.data.readers.tables import column_values, table_columns
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info

# JSONL member with an object from label to probability, as `predict` writes it.
PROBABILITIES = "probabilities"
# Probabilities may be rounded. Below the second bound they are not, and keep their bits.
_TOLERANCE, _ROUNDED = 1e-3, 1e-12
_HALF = 0.5


def soft_label_names(source: Any, columns: Sequence[str], separator: str) -> tuple[str, ...]:
    """Returns the label names: the columns, or the first object's members. Raises `UserError` without an object."""
    if tuple(columns) != (PROBABILITIES,):
        return tuple(columns)
    cell = next(filter(None, row_cells(source, PROBABILITIES, separator).values()), "")
    try:
        return tuple(_object(cell))
    except ValueError as error:
        raise UserError(f"{source if isinstance(source, str | os.PathLike) else name_of(source)}: {error}") from error


class SoftReader:
    """`read_table` for tables with soft labels. A table without their columns, such as a dev file, has labels alone.

    Args:
      read: `read_table` with its options.
      columns: a column for each label, or `probabilities` alone.
      independent: whether each label has its own probability.
    """

    def __init__(self, read: functools.partial[Any], columns: Sequence[str], *, independent: bool) -> None:
        self._read, self._columns, self._independent = read, columns, independent

    def __call__(self, source: Any, *, labels: Sequence[str] | None) -> tuple[Examples, tuple[str, ...]]:
        """Reads a table; see `read_table`."""
        separator, label = self._read.keywords["separator"], self._read.keywords["label_column"]
        is_file = isinstance(source, str | os.PathLike)
        present = set(table_columns(source, separator)) if is_file else column_names(source)
        if present is not None and not present & {*self._columns}:
            return self._read(source, labels=labels)  # type: ignore[no-any-return]
        names = tuple(labels or ())
        if len(self._columns) not in (1, len(names)):
            raise UserError(
                f"soft labels need a column for each of the labels {listed(names)}; received {listed(self._columns)}"
            )
        read = self._read
        label_columns = [label] if isinstance(label, str) else list(label)
        if present is not None and not present & {*label_columns}:
            name = source if is_file else name_of(source)
            log_info(f"{name} has no column {listed(label_columns)}: the most likely label of each text is its label")
            read = functools.partial(read, label_column=None)
        examples, _ = read(source, labels=names)
        softened = with_soft_labels(
            examples, names, source, self._columns, independent=self._independent, separator=separator
        )
        return softened, names


def with_soft_labels(
    examples: Examples, labels: Sequence[str], source: Any, columns: Sequence[str], *, independent: bool, separator: str
) -> Examples:
    """Adds probabilities to the examples, and the most likely labels if they have none.

    Args:
      examples: table rows; their ids are line or row numbers.
      labels: labels in column order or, with `probabilities`, in logit order.
      source: the table.
      columns: a column for each label, or `probabilities` alone.
      independent: whether each label has its own probability, instead of a sum of 1.
      separator: column separator in a `.csv` file.
    Raises:
      UserError: lists all rows that are not probabilities.
    """
    is_file = isinstance(source, str | os.PathLike)
    problems = RowProblems(Path(source) if is_file else name_of(source), "line" if is_file else "row")
    as_objects = tuple(columns) == (PROBABILITIES,)
    cells = [row_cells(source, column, separator) for column in columns]
    rows = np.zeros([len(examples), len(labels)])
    for number, line in enumerate(examples.ids):
        try:
            if as_objects:
                content = _object(cells[0].get(line, ""))
                if set(content) != set(labels):
                    raise ValueError(
                        f"{PROBABILITIES} must have the labels {listed(labels)}; received {listed(content)}"
                    )
                values = [content[label] for label in labels]
            else:
                values = [_number(of_column.get(line, "").strip()) for of_column in cells]
            rows[number] = checked_probabilities(values, independent=independent)
        except ValueError as error:
            problems.add(int(line), str(error))
    problems.raise_if_any()
    if not independent:
        rows = normalized(rows)
    softened = dataclasses.replace(examples, soft_labels=rows)
    if examples.labels is not None:
        return softened
    likely = (rows >= _HALF if independent else rows.argmax(axis=1)).astype(np.int32)
    return dataclasses.replace(softened, labels=likely, has_likely_labels=True)


def normalized(rows: np.ndarray) -> np.ndarray:
    """Divides rows [N, C] by their sums, unless the sum is 0, or 1 but for rounding."""
    sums = rows.sum(axis=1, keepdims=True)
    return np.asarray(rows / np.where((np.abs(sums - 1) > _ROUNDED) & (sums > 0), sums, 1.0))


def check_soft_labels(train: Any, columns: Sequence[str]) -> None:
    """Raises a `UserError` if the training examples have no soft labels."""
    if train.soft_labels is None:
        option = argument("soft_label_columns", python="soft_labels")
        raise UserError(
            f"{train.source} must have soft labels in {listed(columns)}; it has none; add them, or leave out {option}"
        )


def soft_logits(probabilities: Any, *, independent: bool) -> Any:
    """Returns logits, float32 [B, C]: softmax(logits / t) is p^(1/t), renormalized, for every temperature t.

    Probabilities 0 and 1 have infinite logits with an exact softmax or sigmoid.

    Args:
      probabilities: [B, C]. In float32, those near 1 would have only a few different logits.
      independent: whether each label has its own probability, instead of a sum of 1.
    """
    import tensorflow as tf

    probabilities = tf.cast(probabilities, tf.float64)
    logits = tf.math.log(probabilities)
    return tf.cast(logits - tf.math.log1p(-probabilities) if independent else logits, tf.float32)


def row_cells(source: Any, column: str, separator: str) -> dict[str, str]:
    """Returns a column: row number → cell."""
    if isinstance(source, str | os.PathLike):
        return column_values(source, column, separator)
    rows = object_rows(source, column, None)
    return {str(number): cells.get(column, "") for number, cells in rows if not isinstance(cells, str)}


def _number(text: str) -> float:
    """Reads a cell's number. Raises `ValueError` without one."""
    try:
        return parse_score(text)
    except ValueError as error:
        raise ValueError(f"probabilities must be numbers; received {shown(text)}") from error


def _object(text: str) -> dict[str, Any]:
    """Reads a cell's object. Raises `ValueError` without one."""
    try:
        return json_object(text)
    except ValueError as error:
        raise ValueError(
            f"{PROBABILITIES} must be an object from label to probability; received {shown(text)}"
        ) from error


def checked_probabilities(values: Sequence[Any], *, independent: bool) -> list[float]:
    """Returns values as probabilities. Raises `ValueError` if they are none."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        raise ValueError(f"probabilities must be numbers; received {listed(values)}")
    received = ", ".join(f"{number:g}" for number in numbers)[:200]
    if not all(0 <= number <= 1 for number in numbers):
        remedy = "sigmoid" if independent else "softmax"
        raise ValueError(
            f"probabilities must lie in [0, 1]; received {received}; these look like logits: apply the {remedy}"
        )
    total = sum(numbers)
    if not independent and abs(total - 1) > _TOLERANCE:
        raise ValueError(f"the probabilities of a text must sum to 1; received {received}, with the sum {total:g}")
    return [float(number) for number in numbers]


def check_kind(kind: str, columns: Sequence[str], kinds: Sequence[str]) -> None:
    """Raises a `UserError` for task kinds without probabilities."""
    if kind not in kinds:
        raise UserError(
            f"soft labels are for {' and '.join(kinds)}; received {listed(columns)} for {kind}; leave out "
            f"{argument('soft_label_columns', python='soft_labels')}"
        )
