"""Word tags in a table column, beside the labels of other heads.

A cell has a tag for each word between white space, such as `O B-city I-city`. Or it has spans, a JSON list as in a
.jsonl file with spans; `[]` is a text without one. A .jsonl file or an object in memory may have lists of either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.readers.iob import SchemeCheck
from pocketbert.data.readers.rows import RowProblems, shown
from pocketbert.data.readers.soft_labels import row_cells
from pocketbert.data.readers.table_objects import name_of
from pocketbert.data.readers.tables import read_table
from pocketbert.data.readers.tagged_texts import TaggedTexts, spans_on_words
from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_runtime.answers.tags import OUTSIDE, iob2, is_tag, spans_of, type_of
from pocketbert_runtime.json_reading import parse_json


def read_tag_column(
    source: Any,
    *,
    text: str,
    column: str,
    types: Sequence[str] | None = None,
    separator: str = ",",
    skip_bad_rows: bool = False,
    without: Collection[str] = (),
) -> tuple[TaggedTexts, list[str]]:
    """Reads a table's texts with the tags in one column, and their ids as in `read_table`.

    Args:
      source: see `read_table`.
      text: text column.
      column: column with the tags or spans; see the module.
      types: allowed span types; None for any.
      separator: column separator in a `.csv` file.
      skip_bad_rows: skip unreadable rows, and log their number.
      without: row ids to leave out.
    Raises:
      UserError: see `read_table`; a cell has more or fewer tags than words, a tag without a prefix or with an unknown
        type, spans that overlap or lie outside their text, or tags that no scheme allows.
    """
    columns: dict[str, Any] = {"separator": separator, "skip_bad_rows": skip_bad_rows, "without": without}
    rows, _ = read_table(source, text_column=text, **columns)
    is_file = isinstance(source, str | os.PathLike)
    where = Path(source) if is_file else name_of(source)
    problems, check = RowProblems(where, "line" if is_file else "row"), SchemeCheck(where)
    cells = row_cells(source, column, separator)
    known_types = None if types is None else set(types)
    chosen, words, tags, cut = [], [], [], 0
    for index, (content, line) in enumerate(zip(rows.texts, rows.ids, strict=True)):
        try:
            values = _values(cells.get(line, ""), column)
            if values and all(isinstance(value, str) for value in values):
                of_text, of_words = _tagged(content, values, known_types)
                check.add(of_words, [int(line)] * len(of_words))
                of_words = iob2(spans_of(of_words), len(of_words))
            else:
                of_text, of_words, cut_in_text = spans_on_words(values, content, known_types)
                cut += cut_in_text
        except ValueError as error:
            problems.add(int(line), f"column {column!r}: {error}")
            continue
        chosen.append(index)
        words.append(of_text)
        tags.append(of_words)
    if skip_bad_rows or not len(problems):
        check.raise_if_none()
    if not skip_bad_rows or not chosen:
        problems.raise_if_any()
    if len(problems):
        problems.log_skipped(len(rows))
    if cut:
        log_info(f"{where}: {cut} spans start or end inside a word; they are extended to whole words")
    taken = rows.select(chosen)
    return TaggedTexts(taken.texts, words, tags, rows.source, rows.skipped_rows + len(problems)), taken.ids


def _values(cell: str, column: str) -> list[Any]:
    """Returns the tags or spans in a cell. Raises `ValueError` without any."""
    if not cell.strip():
        raise ValueError(f"a cell must have a tag for each word, or a list of spans; received {shown(cell)}")
    if not cell.lstrip().startswith("["):
        return cell.split()
    try:
        values = parse_json(cell, f"column {column!r}")
        # In an object in memory, objects and lists inside a list are texts, and so are the numbers in these lists.
        return [_span(parse_json(value, "a span")) if _is_json(value) else value for value in values]
    except UserError as error:
        raise ValueError(str(error)) from error


def _span(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 3:
        return value
    return [int(part) if isinstance(part, str) and part.isdecimal() else part for part in value[:2]] + value[2:]


def _is_json(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("{", "["))


def _tagged(text: str, tags: list[str], known_types: set[str] | None) -> tuple[np.ndarray, list[str]]:
    """Returns a text's words, int64 `[words, 2]`, and their tags. Raises `ValueError` if tags are wrong or missing."""
    words = np.array([match.span() for match in re.finditer(r"\S+", text)], np.int64).reshape(-1, 2)
    if len(words) != len(tags):
        raise ValueError(
            f"there must be a tag for each of the {len(words)} words; received {len(tags)}: {shown(' '.join(tags))}"
        )
    for tag in tags:
        if not is_tag(tag):
            raise ValueError(f"a tag must be O, or B-, I-, E- or S- and a type, such as B-LOC; received {shown(tag)}")
        if known_types is not None and tag != OUTSIDE and type_of(tag) not in known_types:
            raise ValueError(
                f"the type must be one of {', '.join(sorted(known_types))[:200]}; received {shown(type_of(tag))}"
            )
    return words, tags
