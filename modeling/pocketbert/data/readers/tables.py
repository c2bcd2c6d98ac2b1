"""Labelled text as examples: a CSV, TSV or JSONL file with named columns, or an object in memory.

.csv    RFC 4180: a header, commas (or another separator), double quotes around cells that need them.
.tsv    a header, tabs; quotes are ordinary characters, as in GLUE's files.
.jsonl  one JSON object per line.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.label_columns import ClassColumn, FlagColumns, LabelSetColumn
from pocketbert.data.readers.rows import (
    Row,
    RowProblems,
    json_object,
    json_text,
    listed,
    parse_score,
    read_utf8,
    shown,
    tsv_rows,
)
from pocketbert.data.readers.table_objects import name_of, object_rows
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info

# Label form in a file: a class, any number of labels, or a score. Several task kinds may share a form.
LabelForm = Literal["classification", "multi_label", "regression"]
LABEL_SEPARATOR = "|"
# Unless the caller names another one.
LABEL_COLUMN = "label"
SUFFIXES = (".csv", ".tsv", ".jsonl")
_TAB = "tab"
_MOST_CELL_CHARACTERS = 2**31 - 1
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
# Extension → pandas function that reads it.
_BINARY_TABLES = {".parquet": "read_parquet", ".feather": "read_feather", ".arrow": "read_feather"}
_DATA_SET_FILES = ("dataset_info.json", "dataset_dict.json", "state.json")
# Other column separators in a .csv file → value for --separator.
_OTHER_SEPARATORS = {";": ";", "\t": _TAB, "|": "|"}


def read_table(
    source: Any,
    *,
    text_column: str,
    pair_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    numbered: bool = True,
    kind: LabelForm = "classification",
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
    without: Collection[str] = (),
) -> tuple[Examples, tuple[str, ...]]:
    """Reads a table with sentences or pairs, with or without labels.

    Args:
      source: path of a `.csv`, `.tsv` or `.jsonl` file in UTF-8, or an object (`table_objects.object_rows`).
      text_column: column with the sentence, or the first sentence in a pair.
      pair_column: column with the second sentence, or None.
      label_column: column with the label; several columns with 0 or 1 for `multi_label`; None for unlabelled text.
      labels: labels in logit order. A cell has a label or, unless labels are whole numbers, its index; for
        `multi_label` also a vector of 0 and 1. None takes those in the file: in numeric order if all are whole numbers,
        else in alphabetical order.
      numbered: whether cells may have indices or vectors. Pass False if `labels` has an order not chosen for this file.
      kind: label form.
      label_separator: separator between labels in a cell (`multi_label`); an empty cell has no labels. A .jsonl file or
        an object may also have lists.
      separator: column separator in a `.csv` file: one character, or `tab`.
      skip_bad_rows: skip rows without a text or label, with a wrong number of columns, or with an unreadable label or
        score, and log their number.
      without: row ids to leave out.
    Returns:
      Examples, with line numbers from 1 or an object's row numbers from 0 as ids, and labels in logit order, or none.
    Raises:
      UserError: no such file, another extension, text that is not UTF-8, a missing column, an empty text, an unknown
        label, an ambiguous label column, or a score that is not a finite number. One error lists all bad rows.
    """
    is_file = isinstance(source, str | os.PathLike)
    path = Path(source) if is_file else name_of(source)
    label_columns = [label_column] if isinstance(label_column, str) and label_column else [*(label_column or ())]
    required = [column for column in (text_column, pair_column, *label_columns) if column]
    if len(set(required)) < len(required):
        raise UserError(
            f"{path}: text, pair and label must be in different columns; received {', '.join(required)}; use each "
            "column once"
        )
    if len(label_columns) > 1 and kind != "multi_label":
        raise UserError(
            f"{path}: {kind} reads one label column; received {', '.join(label_columns)}; name one, or pass "
            f"{argument('kind', 'multi_label')} for a label in each"
        )
    problems = RowProblems(path, "line" if is_file else "row")
    rows: list[tuple[int, dict[str, str]]] = []
    if isinstance(path, Path):
        source_rows = _file_rows(path, required, separator)
    else:
        source_rows = object_rows(source, text_column, pair_column, label_columns)
    # An empty cell has no labels; an empty flag is missing.
    may_be_empty = label_columns if kind == "multi_label" and len(label_columns) == 1 else ()
    for line, cells in source_rows:
        if without and str(line) in without:
            continue
        problem = cells if isinstance(cells, str) else _row_problem(cells, required, label_columns, may_be_empty)
        if problem:
            problems.add(line, problem)
        else:
            assert isinstance(cells, dict)
            rows.append((line, {column: cells[column] for column in required}))
    if not skip_bad_rows:
        problems.raise_if_any()

    values: list[Any] | None = None
    found_labels: tuple[str, ...] = ()
    if label_columns:
        read: Callable[[Any], Any] = parse_score
        cells_of_labels: list[Any] = [cells for _, cells in rows]
        if len(label_columns) == 1:
            cells_of_labels = [cells[label_columns[0]].strip() for _, cells in rows]
        where = f"{path}: column {label_columns[0]!r}"
        if len(label_columns) > 1:
            flags = FlagColumns(label_columns, labels, f"{path}:")
            read, found_labels = flags.value, flags.labels
        elif kind == "multi_label" and rows:
            if not label_separator.strip():
                raise UserError(f"{argument('label_separator')} must not be blank; received {shown(label_separator)}")
            sets = LabelSetColumn(cells_of_labels, labels, separator=label_separator, numbered=numbered, where=where)
            read, found_labels = sets.value, sets.labels
        elif kind == "classification" and rows:
            classes = ClassColumn(cells_of_labels, labels, numbered=numbered, where=where)
            read, found_labels = classes.value, classes.labels
        rows, values = _labelled(rows, cells_of_labels, read, problems)
    if not skip_bad_rows or not rows:
        problems.raise_if_any()
    if not rows:
        what = "line 2: the file has a header and no rows" if is_file else "there are no rows"
        raise UserError(f"{path}: {what}; it must have at least one example")
    if len(problems):
        problems.log_skipped(len(problems) + len(rows))
    examples = Examples(
        texts=[cells[text_column] for _, cells in rows],
        pairs=[cells[pair_column] for _, cells in rows] if pair_column else None,
        labels=None if values is None else np.asarray(values, np.float32 if kind == "regression" else np.int32),
        ids=[str(line) for line, _ in rows],
        source=str(path),
        skipped_rows=len(problems),
    )
    return examples, found_labels


def _labelled(
    rows: list[tuple[int, dict[str, str]]], cells: list[Any], read: Callable[[Any], Any], problems: RowProblems
) -> tuple[list[tuple[int, dict[str, str]]], list[Any]]:
    """Returns the rows with readable labels, and their labels."""
    readable, values = [], []
    for row, cell in zip(rows, cells, strict=True):
        try:
            value = read(cell)
        except ValueError as error:
            problems.add(row[0], str(error))
        else:
            readable.append(row)
            values.append(value)
    return readable, values


def _row_problem(
    cells: Mapping[str, str], required: Sequence[str], label_columns: Sequence[str], may_be_empty: Sequence[str]
) -> str | None:
    for column in required:
        if column not in cells:
            return f"the row must have a column {column!r}; received {listed(cells)}"
        if not cells[column].strip() and column not in may_be_empty:
            what = "label" if column in label_columns else "text"
            return f"column {column!r} is empty; every row must have a {what}"
    return None


def table_columns(path: str | os.PathLike[str], separator: str = ",") -> tuple[str, ...]:
    """Returns the column names in good rows of a table file (in any for `.jsonl`); empty without one."""
    rows = (cells for _, cells in _file_rows(Path(path), (), separator) if not isinstance(cells, str))
    if Path(path).suffix.lower() != ".jsonl":
        return tuple(next(rows, ()))
    return tuple(dict.fromkeys(name for cells in rows for name in cells))


def has_labels(
    path: str | os.PathLike[str], labels: Sequence[str], texts: Sequence[str | None], separator: str = ","
) -> bool:
    """Returns whether a table has the column `label`; logs if not. Raises `UserError` if another column has labels."""
    columns = table_columns(path, separator)
    if LABEL_COLUMN in columns:
        return True
    label_texts = {*(label.casefold() for label in labels), *map(str, range(len(labels)))}
    others = [column for column in columns if column not in texts]
    for _, cells in _file_rows(Path(path), (), separator):
        if not isinstance(cells, str):
            others = [column for column in others if cells.get(column, "").strip().casefold() in label_texts]
    if others:
        raise UserError(
            f"{path}: line 1: the header must have the column {LABEL_COLUMN!r}; received {listed(columns)}; pass "
            f"{argument('label', others[0])} if that column has the labels, or {argument('label', '')} for texts "
            "without labels"
        )
    log_info(
        f"{path} has the columns {listed(columns)} and no {LABEL_COLUMN!r}: texts without scores; name the column of "
        f"the labels with {argument('label')}"
    )
    return False


def check_columns(path: str | os.PathLike[str], required: Sequence[str], separator: str = ",") -> None:
    """Raises `UserError` if a file is unreadable or lacks a column."""
    next(_file_rows(Path(path), required, separator), None)


def column_values(path: str | os.PathLike[str], column: str, separator: str = ",") -> dict[str, str]:
    """Returns a column by `read_table`'s row ids, empty for missing JSON members. Raises `UserError` without it."""
    rows = _file_rows(Path(path), [column], separator)
    return {str(line): str(cells.get(column, "")) for line, cells in rows if not isinstance(cells, str)}


def rows_by_id(
    source: Any, text_column: str, columns: Sequence[str], separator: str
) -> dict[str, dict[str, str] | None]:
    """Returns rows by `read_table`'s row ids, None for unreadable ones. JSON and list rows may lack some `columns`.

    Raises:
      UserError: see `read_table`; no row has one of the columns.
    """
    if isinstance(source, str | os.PathLike):
        rows = _file_rows(Path(source), [text_column, *columns], separator)
    else:
        rows = object_rows(source, text_column, None, columns)
    return {str(line): None if isinstance(cells, str) else cells for line, cells in rows}


def _file_rows(path: Path, required: Sequence[str], separator: str) -> Iterator[Row]:
    """Yields the rows in a file: the number of the first line, from 1, and the cells or a message."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path, required, separator)
    if suffix == ".tsv":
        return _tsv(path, required)
    if suffix == ".jsonl":
        return _jsonl(path, required)
    check_format(path)
    raise UserError(f"{path}: the file's name must end in {', '.join(SUFFIXES)}; received {path.suffix or 'none'}")


def check_format(path: Path) -> None:
    """Raises `UserError`, with a line that converts the file, for formats that need another program."""
    suffix = path.suffix.lower()
    rule = f"{path}: the file's name must end in {', '.join(SUFFIXES)}; received"
    if suffix in _SPREADSHEETS:
        raise UserError(f"{rule} {suffix}, a spreadsheet; save it as CSV in UTF-8 and pass that file")
    if suffix in _BINARY_TABLES:
        reader = _BINARY_TABLES[suffix]
        raise UserError(
            f"{rule} {suffix}; convert it in Python: pandas.{reader}({str(path)!r}).to_json("
            f"{str(path.with_suffix('.jsonl'))!r}, orient='records', lines=True, force_ascii=False)"
        )
    if path.is_dir() and any((path / name).exists() for name in _DATA_SET_FILES):
        split = "" if (path / "state.json").exists() else "['train']"
        raise UserError(
            f"{rule} a folder of the datasets library; convert it in Python: datasets.load_from_disk({str(path)!r})"
            f"{split}.to_json({str(path) + '.jsonl'!r}), or pass the object to pocketbert.data.table"
        )
    if path.is_dir():
        raise UserError(f"{path}: the file cannot be read (it is a folder); name a file in it")


def _csv(path: Path, required: Sequence[str], separator: str) -> Iterator[Row]:
    delimiter = "\t" if separator == _TAB else separator
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise UserError(
            f"{argument('separator')} must be one ASCII character other than a quote or a line break, or {_TAB}; "
            f"received {shown(separator)}"
        )
    # Texts may be longer than the module's default, 131,072 characters.
    csv.field_size_limit(_MOST_CELL_CHARACTERS)
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = next(reader)
        _check_header(path, header, required, delimiter)
        line = reader.line_num + 1
        for cells in reader:
            # A quoted cell may span several lines; report the first.
            if cells:
                yield line, _named(header, cells)
            line = reader.line_num + 1
    except csv.Error as error:
        remedy = 'double each quote in a cell and put quotes around the cell, as in "a ""big"" film"'
        if delimiter == "\t":
            remedy += f", or if quotes are ordinary characters, name the file {path.with_suffix('.tsv').name}"
        raise UserError(f"{path}: line {line}: the row must be CSV ({error}); {remedy}") from error


def _tsv(path: Path, required: Sequence[str]) -> Iterator[Row]:
    (_, header), *rows = tsv_rows(read_utf8(path))
    _check_header(path, header, required, "\t")
    for line, cells in rows:
        named = _named(header, cells)
        # A spreadsheet and pandas put cells with line breaks into quotes, which .tsv does not have.
        if isinstance(named, str) and any(cell.startswith('"') or cell.endswith('"') for cell in cells):
            copy = path.with_suffix(".csv").name
            named += f" (.tsv has no quotes; if quoted cells have line breaks, name the file {copy} and pass "
            named += f"{argument('separator', _TAB)})"
        yield line, named


def _check_header(path: Path, header: list[str], required: Sequence[str], separator: str) -> None:
    for column in required:
        if header.count(column) == 1:
            continue
        where = f"{path}: line 1: the header must have the column {column!r}"
        if column in header:
            raise UserError(f"{where} once; received {listed(header)}; rename the duplicates")
        raise UserError(f"{where}; received {listed(header)}; {_header_remedy(path, header, separator)}")


def _header_remedy(path: Path, header: list[str], separator: str) -> str:
    if len(header) == 1 and path.suffix.lower() == ".csv":
        for character, name in {**_OTHER_SEPARATORS, ",": ","}.items():
            if character in header[0] and character != separator:
                return f"if the columns are separated by {character!r}, pass {argument('separator', name)}"
    return "choose one of its columns"


def _named(header: list[str], cells: list[str]) -> dict[str, str] | str:
    if len(cells) != len(header):
        return f"the row must have the header's {len(header)} columns; received {len(cells)}"
    return dict(zip(header, cells, strict=True))


def _jsonl(path: Path, required: Sequence[str]) -> Iterator[Row]:
    missing = set(required)
    first: dict[str, str] | None = None
    rows: list[Row] = []
    for line, text in enumerate(read_utf8(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json_object(text)
        except ValueError as error:
            rows.append((line, str(error)))
            continue
        cells = {name: json_text(value) for name, value in row.items()}
        missing -= cells.keys()
        first = first or cells
        rows.append((line, cells))
    # If no row has the column, its name is wrong, not the rows.
    if first is not None and missing and len(rows) > 1:
        column = next(name for name in required if name in missing)
        raise UserError(
            f"{path}: the rows must have the column {column!r}; received {listed(first)}; choose one of their columns"
        )
    yield from rows
