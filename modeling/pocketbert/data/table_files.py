"""Rows of a user's own labelled text: CSV, TSV or JSONL with named columns.

.csv    RFC 4180: a header, commas (or another separator), double quotes around cells that need them.
.tsv    a header, tabs; quotes are ordinary characters, as in GLUE's files.
.jsonl  one JSON object a line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from pocketbert.data.reading import Row, json_object, json_text, listed, read_utf8, shown, tsv_rows
from pocketbert.errors import UserError

SUFFIXES = (".csv", ".tsv", ".jsonl")
_TAB = "tab"
# What a .csv file may separate its columns by where it is not a comma → as --separator names it.
_OTHER_SEPARATORS = {";": ";", "\t": _TAB, "|": "|"}


def file_rows(path: Path, wanted: Sequence[str], separator: str) -> Iterator[Row]:
    """The rows of a file.

    Args:
      path: a `.csv`, `.tsv` or `.jsonl` file, in UTF-8.
      wanted: columns that it must have.
      separator: what separates the columns of a `.csv` file: one character, or `tab`.
    Yields:
      The number of the row's first line, from 1, and its cells or what is wrong with it.
    Raises:
      UserError: no such file, another extension, text that is not UTF-8, a missing column.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path, wanted, separator)
    if suffix == ".tsv":
        return _tsv(path, wanted)
    if suffix == ".jsonl":
        return _jsonl(path, wanted)
    raise UserError(f"{path}: the file's name must end in {', '.join(SUFFIXES)}; received {path.suffix or 'none'}")


def _csv(path: Path, wanted: Sequence[str], separator: str) -> Iterator[Row]:
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


def _tsv(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
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
            raise UserError(f"{where} once; received {listed(header)}; rename the others")
        raise UserError(f"{where}; received {listed(header)}; {_header_remedy(path, header, separator)}")


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


def _jsonl(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    missing = set(wanted)
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
    # A name that no row has is the caller's mistake, and no row's.
    if first is not None and missing and len(rows) > 1:
        column = next(name for name in wanted if name in missing)
        raise UserError(
            f"{path}: the rows must have the column {column!r}; received {listed(first)}; name a column that they have"
        )
    yield from rows
