"""A user's own labelled text: CSV, TSV or JSONL with named columns.

.csv    RFC 4180: a header, commas (or another separator), double quotes around cells that need them.
.tsv    a header, tabs; quotes are ordinary characters, as in GLUE's files.
.jsonl  one JSON object a line.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.reading import RowProblems, json_object, parse_score, read_utf8, shown, tsv_rows
from pocketbert.errors import UserError
from pocketbert.json_reading import parse_json

SUFFIXES = (".csv", ".tsv", ".jsonl")
LABEL_SEPARATOR = "|"
_TAB = "tab"
# What a .csv file may separate its columns by where it is not a comma → as --separator names it.
_OTHER_SEPARATORS = {";": ";", "\t": _TAB, "|": "|"}
# (line number from 1, column → cell as text), or in place of the cells what is wrong with the row.
_Row = tuple[int, dict[str, str] | str]


def read_table(
    path: str | os.PathLike[str],
    *,
    text_column: str,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: Sequence[str] | None = None,
    numbered: bool = True,
    kind: Literal["classification", "multi_label", "regression"] = "classification",
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> tuple[Examples, tuple[str, ...]]:
    """Reads a table of sentences or pairs, with or without labels.

    Args:
      path: a `.csv`, `.tsv` or `.jsonl` file, in UTF-8.
      text_column: the column of the sentence, or of the first sentence of a pair.
      pair_column: the column of the second sentence, or None.
      label_column: the column of the label, or None for unlabelled text.
      labels: the classes in the order of their indices. A cell holds a label's text or, where no label is itself a
        whole number, its index. None takes the labels that occur: in numeric order if all are whole numbers, else
        in alphabetical order.
      numbered: whether a cell may hold an index; False where nobody said that the file counts in this order.
      kind: what the labels are: classes, any number of labels for `multi_label`, or scores for `regression`.
      label_separator: what separates the labels of a cell for `multi_label`; an empty cell has none. In a .jsonl file
        the value may also be a list of texts.
      separator: what separates the columns of a `.csv` file: one character, or `tab`.
      skip_bad_rows: leave out rows without a text or label, with the wrong number of columns, or with a label or score
        that cannot be read, and say on stderr how many.
    Returns:
      The examples, and the labels in the order of their indices (empty for regression and for unlabelled text). Ids
      are the numbers of the lines.
    Raises:
      UserError: no such file, another extension, text that is not UTF-8, a missing column, an empty text, an unknown
        label, a score that is not a finite number: with the file, the line and the reason, all bad rows together.
    """
    path = Path(path)
    wanted = [column for column in (text_column, pair_column, label_column) if column]
    if len(set(wanted)) < len(wanted):
        raise UserError(
            f"{path}: text, pair and label must be in columns of their own; received {', '.join(wanted)}; name each "
            "once"
        )
    problems = RowProblems(path)
    rows: list[tuple[int, dict[str, str]]] = []
    for line, cells in _rows(path, wanted, separator):
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
            sets = [_label_set(text, label_separator, path) for text in texts_of_labels]
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
        raise UserError(f"{path}: line 2: the file holds a header and no rows; it must hold at least one example")
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


def _label_set(text: str, separator: str, path: Path) -> list[str]:
    """The labels of a cell, each once; of a .jsonl file a list comes as JSON."""
    parts = text.split(separator)
    if path.suffix.lower() == ".jsonl" and text.startswith("["):
        with contextlib.suppress(UserError):
            parts = [_json_text(value) for value in parse_json(text, path)]
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


def _rows(path: Path, wanted: Sequence[str], separator: str) -> Iterator[_Row]:
    """The rows of a file that has the wanted columns."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path, wanted, separator)
    if suffix == ".tsv":
        return _tsv(path, wanted)
    if suffix == ".jsonl":
        return _jsonl(path, wanted)
    raise UserError(f"{path}: the file's name must end in {', '.join(SUFFIXES)}; received {path.suffix or 'none'}")


def _row_problem(
    cells: Mapping[str, str], wanted: Sequence[str], label_column: str | None, may_be_empty: str | None
) -> str | None:
    for column in wanted:
        if column not in cells:
            return f"the row must have a column {column!r}; it has {_listed(cells)}"
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


def _csv(path: Path, wanted: Sequence[str], separator: str) -> Iterator[_Row]:
    delimiter = "\t" if separator == _TAB else separator
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise UserError(
            f"--separator must be one ASCII character other than a quote or a line break, or {_TAB}; received "
            f"{shown(separator)}"
        )
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = next(reader)
        _check_header(path, header, wanted, delimiter)
        line = reader.line_num + 1
        for cells in reader:
            # A quoted cell may span lines: the row is named by its first.
            if cells:
                yield line, _named(header, cells)
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}: line {line}: the row must be CSV ({error}); check its double quotes, or use .tsv or .jsonl"
        ) from error


def _tsv(path: Path, wanted: Sequence[str]) -> Iterator[_Row]:
    (_, header), *rows = tsv_rows(read_utf8(path))
    _check_header(path, header, wanted, "\t")
    for line, cells in rows:
        yield line, _named(header, cells)


def _check_header(path: Path, header: list[str], wanted: Sequence[str], separator: str) -> None:
    for column in wanted:
        if header.count(column) == 1:
            continue
        where = f"{path}: line 1: the header must name the column {column!r}"
        if column in header:
            raise UserError(f"{where} once; received {_listed(header)}; rename the others")
        raise UserError(f"{where}; received {_listed(header)}; {_header_remedy(path, header, separator)}")


def _header_remedy(path: Path, header: list[str], separator: str) -> str:
    if len(header) == 1 and path.suffix.lower() == ".csv":
        for character, name in {**_OTHER_SEPARATORS, ",": ","}.items():
            if character in header[0] and character != separator:
                return f"if the columns are separated by {character!r}, pass --separator='{name}'"
    return "name a column that the file has"


def _named(header: list[str], cells: list[str]) -> dict[str, str] | str:
    if len(cells) != len(header):
        return f"the row must have the header's {len(header)} columns; received {len(cells)}"
    return dict(zip(header, cells, strict=True))


def _jsonl(path: Path, wanted: Sequence[str]) -> Iterator[_Row]:
    missing = set(wanted)
    first: dict[str, str] | None = None
    rows: list[_Row] = []
    for line, text in enumerate(read_utf8(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json_object(text)
        except ValueError as error:
            rows.append((line, str(error)))
            continue
        cells = {name: _json_text(value) for name, value in row.items()}
        missing -= cells.keys()
        first = first or cells
        rows.append((line, cells))
    # A name that no row has is the caller's mistake, and no row's.
    if first is not None and missing and len(rows) > 1:
        column = next(name for name in wanted if name in missing)
        raise UserError(
            f"{path}: the rows must have the column {column!r}; received {_listed(first)}; name a column that they have"
        )
    yield from rows


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(shown, names))[:200] or "none"


def _json_text(value: object) -> str:
    """A JSON value as a cell; null is an empty one, and 1.0 is the label 1."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)
