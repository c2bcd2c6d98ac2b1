"""A user's own labelled text, from a file or an object in memory: rows of cells to examples."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.reading import RowProblems, json_text, listed, parse_score, shown
from pocketbert.data.table_files import file_rows
from pocketbert.data.table_objects import name_of, object_rows
from pocketbert.errors import UserError
from pocketbert.json_reading import parse_json

# How a label stands in a file: a class, any number of labels, or a score. Several kinds of task may share a form.
LabelForm = Literal["classification", "multi_label", "regression"]
LABEL_SEPARATOR = "|"


def read_table(
    source: Any,
    *,
    text_column: str,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: Sequence[str] | None = None,
    numbered: bool = True,
    kind: LabelForm = "classification",
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> tuple[Examples, tuple[str, ...]]:
    """Reads a table of sentences or pairs, with or without labels.

    Args:
      source: the path of a `.csv`, `.tsv` or `.jsonl` file, in UTF-8, or an object (`table_objects.object_rows`).
      text_column: the column of the sentence, or of the first sentence of a pair.
      pair_column: the column of the second sentence, or None.
      label_column: the column of the label, or None for unlabelled text.
      labels: the classes in the order of their indices. A cell holds a label's text or, where no label is itself a
        whole number, its index. None takes the labels that occur: in numeric order if all are whole numbers, else
        in alphabetical order.
      numbered: whether a cell may hold an index; False where nobody said that the file counts in this order.
      kind: what the labels are: classes, any number of labels for `multi_label`, or scores for `regression`.
      label_separator: what separates the labels of a cell for `multi_label`; an empty cell has none. In a .jsonl file
        or an object the value may also be a list of texts.
      separator: what separates the columns of a `.csv` file: one character, or `tab`.
      skip_bad_rows: leave out rows without a text or label, with the wrong number of columns, or with a label or score
        that cannot be read, and say on stderr how many.
    Returns:
      The examples, and the labels in the order of their indices (empty for regression and for unlabelled text). Ids
      are the numbers of the lines, of an object those of its rows, from 0.
    Raises:
      UserError: no such file, another extension, text that is not UTF-8, a missing column, an empty text, an unknown
        label, a score that is not a finite number: with the file, the line and the reason, all bad rows together.
    """
    is_file = isinstance(source, str | os.PathLike)
    path = Path(source) if is_file else name_of(source)
    has_lists = not is_file or Path(source).suffix.lower() == ".jsonl"
    wanted = [column for column in (text_column, pair_column, label_column) if column]
    if len(set(wanted)) < len(wanted):
        raise UserError(
            f"{path}: text, pair and label must be in columns of their own; received {', '.join(wanted)}; name each "
            "once"
        )
    problems = RowProblems(path, "line" if is_file else "row")
    rows: list[tuple[int, dict[str, str]]] = []
    if isinstance(path, Path):
        given = file_rows(path, wanted, separator)
    else:
        given = object_rows(source, text_column, pair_column, label_column)
    for line, cells in given:
        may_be_empty = label_column if kind == "multi_label" else None
        problem = cells if isinstance(cells, str) else _row_problem(cells, wanted, label_column, may_be_empty)
        if problem:
            problems.add(line, problem)
        else:
            assert isinstance(cells, dict)
            rows.append((line, {column: cells[column] for column in wanted}))
    if not skip_bad_rows:
        problems.raise_if_any()

    values: list[Any] | None = None
    found: tuple[str, ...] = ()
    if label_column:
        texts_of_labels = [cells[label_column].strip() for _, cells in rows]
        if kind == "multi_label" and rows:
            if not label_separator.strip():
                raise UserError(f"--label-separator must not be blank; received {shown(label_separator)}")
            sets = [_label_set(text, label_separator, has_lists) for text in texts_of_labels]
            found = _in_order(set().union(*sets)) if labels is None else tuple(labels)
            if not found:
                raise UserError(f"{path}: column {label_column!r} must hold at least one label; received none")
            if not numbered:
                _check_no_numbers(
                    [each for of_row in sets for each in of_row], found, f"{path}: column {label_column!r}"
                )
            rows, values = _multi_labelled(rows, sets, found, problems)
        elif kind == "classification" and rows:
            found = _in_order(set(texts_of_labels)) if labels is None else tuple(labels)
            if len(found) < 2:
                raise UserError(
                    f"{path}: column {label_column!r} must hold at least two different labels; received "
                    f"{', '.join(found)[:200] or 'none'}; name the labels, or for scores choose regression"
                )
            if not numbered:
                _check_no_numbers(texts_of_labels, found, f"{path}: column {label_column!r}")
        if kind != "multi_label":
            rows, values = _labelled(rows, texts_of_labels, found, problems)
    if not skip_bad_rows or not rows:
        problems.raise_if_any()
    if not rows:
        what = "line 2: the file holds a header and no rows" if is_file else "there are no rows"
        raise UserError(f"{path}: {what}; it must hold at least one example")
    if len(problems):
        problems.say_skipped(len(problems) + len(rows))
    examples = Examples(
        texts=[cells[text_column] for _, cells in rows],
        pairs=[cells[pair_column] for _, cells in rows] if pair_column else None,
        labels=None if values is None else np.asarray(values, np.float32 if kind == "regression" else np.int32),
        ids=[str(line) for line, _ in rows],
        source=str(path),
        skipped_rows=len(problems),
    )
    return examples, found


def _labelled(
    rows: list[tuple[int, dict[str, str]]], texts: list[str], classes: tuple[str, ...], problems: RowProblems
) -> tuple[list[tuple[int, dict[str, str]]], list[float]]:
    """The rows whose labels can be read, and their class indices, or their scores where there are no classes."""
    indices = _label_indices(classes)
    kept, values = [], []
    for row, text in zip(rows, texts, strict=True):
        try:
            value = indices[text] if classes else parse_score(text)
        except KeyError:
            problems.add(row[0], f"the label must be one of {', '.join(classes)[:200]}; received {shown(text)}")
        except ValueError as error:
            problems.add(row[0], str(error))
        else:
            kept.append(row)
            values.append(value)
    return kept, values


def _label_set(text: str, separator: str, has_lists: bool) -> list[str]:
    """The labels of a cell, each once; of a .jsonl file and of an object a list comes as JSON."""
    parts = text.split(separator)
    if has_lists and text.startswith("["):
        with contextlib.suppress(UserError):
            parts = [json_text(value) for value in parse_json(text, "the cell")]
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _multi_labelled(
    rows: list[tuple[int, dict[str, str]]], sets: list[list[str]], labels: tuple[str, ...], problems: RowProblems
) -> tuple[list[tuple[int, dict[str, str]]], list[list[int]]]:
    """The rows whose labels are known, and 0 or 1 for each of `labels`."""
    indices = _label_indices(labels)
    kept, values = [], []
    for row, of_row in zip(rows, sets, strict=True):
        unknown = [label for label in of_row if label not in indices]
        if unknown:
            problems.add(
                row[0], f"labels must be of {', '.join(labels)[:200]}; received {', '.join(map(shown, unknown))[:200]}"
            )
            continue
        present = {indices[label] for label in of_row}
        kept.append(row)
        values.append([int(index in present) for index in range(len(labels))])
    return kept, values


def _row_problem(
    cells: Mapping[str, str], wanted: Sequence[str], label_column: str | None, may_be_empty: str | None
) -> str | None:
    for column in wanted:
        if column not in cells:
            return f"the row must have a column {column!r}; it has {listed(cells)}"
        if not cells[column].strip() and column != may_be_empty:
            what = "label" if column == label_column else "text"
            return f"column {column!r} is empty; every row must have its {what}"
    return None


def _is_whole_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _in_order(found: set[str]) -> tuple[str, ...]:
    if all(map(_is_whole_number, found)):
        # Python's int() refuses thousands of digits, Decimal does not.
        return tuple(sorted(found, key=Decimal))
    return tuple(sorted(found))


def _check_no_numbers(cells: list[str], labels: tuple[str, ...], where: str) -> None:
    """Refuses whole numbers that are no labels, since nothing says which labels they stand for."""
    if not any(map(_is_whole_number, labels)) and any(map(_is_whole_number, cells)):
        numbers = ", ".join(map(str, range(len(labels))))
        raise UserError(
            f"{where} has whole numbers, and the labels are {', '.join(labels)}; say what {numbers} stand for with "
            f"--labels in that order, such as --labels={','.join(labels)}, or with --task"
        )


def _label_indices(labels: Sequence[str]) -> dict[str, int]:
    indices = {label: index for index, label in enumerate(labels)}
    if not any(map(_is_whole_number, labels)):
        indices |= {str(index): index for index in range(len(labels))}
    return indices
