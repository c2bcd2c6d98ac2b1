"""A user's own labelled text: CSV, TSV or JSONL with named columns.

.csv    RFC 4180: a header, commas, double quotes around cells that need them.
.tsv    a header, tabs; quotes are ordinary characters, as in GLUE's files.
.jsonl  one JSON object a line.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.reading import RowProblems, parse_score, read_utf8, tsv_rows
from pocketbert.errors import UserError

# (line number from 1, column → cell as text), or in place of the cells what is wrong with the row.
_Row = tuple[int, dict[str, str] | str]


def read_table(
    path: str | os.PathLike[str],
    *,
    text_column: str,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: Sequence[str] | None = None,
    kind: Literal["classification", "regression"] = "classification",
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
      kind: what the labels are: classes, or scores for `regression`.
    Returns:
      The examples, and the classes in the order of their indices (empty for regression and for unlabelled text). Ids
      are the numbers of the lines.
    Raises:
      UserError: no such file, another extension, text that is not UTF-8, a missing column, an empty text, an unknown
        label, a score that is not a finite number: with the file, the line and the reason, all bad rows together.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path], Iterator[_Row]]] = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl}
    if path.suffix not in readers:
        raise UserError(f"{path}: the file's name must end in {', '.join(readers)}; received {path.suffix or 'none'}")
    wanted = [column for column in (text_column, pair_column, label_column) if column]
    if len(set(wanted)) < len(wanted):
        raise UserError(
            f"{path}: text, pair and label must be in columns of their own; received {', '.join(wanted)}; name each "
            "once"
        )
    problems = RowProblems(path)
    lines: list[int] = []
    columns: dict[str, list[str]] = {column: [] for column in wanted}
    for line, cells in readers[path.suffix](path):
        problem = cells if isinstance(cells, str) else _row_problem(cells, wanted, label_column)
        if problem:
            problems.add(line, problem)
            continue
        assert isinstance(cells, dict)
        lines.append(line)
        for column in wanted:
            columns[column].append(cells[column])
    problems.raise_if_any()
    if not lines:
        raise UserError(f"{path}: line 2: the file holds a header and no rows; it must hold at least one example")

    values: np.ndarray | None = None
    found: tuple[str, ...] = ()
    if label_column and kind == "regression":
        values = np.asarray(_parse_all(columns[label_column], lines, parse_score, path), np.float32)
    elif label_column:
        cells_of_labels = [cell.strip() for cell in columns[label_column]]
        found = _in_order(set(cells_of_labels)) if labels is None else tuple(labels)
        if len(found) < 2:
            raise UserError(
                f"{path}: column {label_column!r} must hold at least two different labels; received "
                f"{', '.join(found) or 'none'}; name the labels, or for scores choose regression"
            )
        indices = _label_indices(found)

        def index_of(cell: str) -> int:
            if cell not in indices:
                raise ValueError(f"the label must be one of {', '.join(found)[:200]}; received {cell!r}")
            return indices[cell]

        values = np.asarray(_parse_all(cells_of_labels, lines, index_of, path), np.int32)
    examples = Examples(
        texts=columns[text_column],
        pairs=columns[pair_column] if pair_column else None,
        labels=values,
        ids=[str(line) for line in lines],
        source=str(path),
    )
    return examples, found


def _row_problem(cells: Mapping[str, str], wanted: Sequence[str], label_column: str | None) -> str | None:
    for column in wanted:
        if column not in cells:
            return f"the row must have a column {column!r}; it has {', '.join(map(repr, cells)) or 'none'}"
        if not cells[column].strip():
            what = "label" if column == label_column else "text"
            return f"column {column!r} is empty; every row must have its {what}"
    return None


def _parse_all(cells: list[str], lines: list[int], parse: Callable[[str], float], path: Path) -> list[float]:
    problems = RowProblems(path)
    parsed = []
    for cell, line in zip(cells, lines, strict=True):
        try:
            parsed.append(parse(cell))
        except ValueError as error:
            problems.add(line, str(error))
    problems.raise_if_any()
    return parsed


def _is_whole_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()


def _in_order(found: set[str]) -> tuple[str, ...]:
    if all(map(_is_whole_number, found)):
        return tuple(sorted(found, key=int))
    return tuple(sorted(found))


def _label_indices(labels: Sequence[str]) -> dict[str, int]:
    indices = {label: index for index, label in enumerate(labels)}
    if not any(map(_is_whole_number, labels)):
        indices |= {str(index): index for index in range(len(labels))}
    return indices


def _csv(path: Path) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), strict=True)
    line = 1
    try:
        header = next(reader)
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


def _tsv(path: Path) -> Iterator[_Row]:
    (_, header), *rows = tsv_rows(read_utf8(path))
    for line, cells in rows:
        yield line, _named(header, cells)


def _named(header: list[str], cells: list[str]) -> dict[str, str] | str:
    if len(cells) != len(header):
        return f"the row must have the header's {len(header)} columns; received {len(cells)}"
    return dict(zip(header, cells, strict=True))


def _jsonl(path: Path) -> Iterator[_Row]:
    for line, text in enumerate(read_utf8(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            yield line, f"the line must be one JSON object ({error.msg} at column {error.colno})"
            continue
        if not isinstance(row, dict):
            yield line, f"the line must be one JSON object; received {type(row).__name__}"
            continue
        yield line, {name: _json_text(value) for name, value in row.items()}


def _json_text(value: object) -> str:
    """A JSON value as a cell; null is an empty one, and 1.0 is the label 1."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)
