"""Labels in a table: the form of a whole column, or a column for each label.

A column decides its form once, for files, DataFrames and data sets alike. An ambiguous column is refused.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pocketbert.data.readers.rows import json_text, listed, shown
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import parse_json

_BITS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1, "False": 0, "True": 1, "FALSE": 0, "TRUE": 1}
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)
_BITS_IN_A_CELL = re.compile(r"[01](?:\.0)?(?:\s*[,;\s]\s*[01](?:\.0)?)+")
# Longer cells are text.
_MOST_LITERAL_CHARACTERS = 10_000
# Fewer whole numbers than this may be classes even if each occurs once, as in a small example.
_FEW_NUMBERS = 10


class Problem(ValueError):
    """An unreadable label in one row; the message has rule and received value."""


def is_whole_number(text: str) -> bool:
    """Returns whether a label is a whole number."""
    return text.removeprefix("-").isdecimal() and text.isascii()


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Returns labels in logit order: numeric if all are whole numbers, else alphabetical."""
    if all(map(is_whole_number, labels)):
        # Python's int() refuses numbers with thousands of digits.
        return tuple(sorted(labels, key=Decimal))
    return tuple(sorted(labels))


class ClassColumn:
    """A column with one class per row.

    Args:
      cells: stripped cells.
      labels: classes in logit order; None for those in the column.
      numbered: whether cells may be indices into `labels`.
      where: start of messages: source and column.
    Raises:
      UserError: the column has lists, scores, numbers in two spellings, or fewer than two classes.
    """

    def __init__(self, cells: Sequence[str], labels: Sequence[str] | None, *, numbered: bool, where: str) -> None:
        named = {*(labels or ())}
        others = [cell for cell in cells if cell not in named]
        for cell in others:
            if _as_list(cell) is not None:
                raise UserError(
                    f"{where} must have one class per row; received the list {shown(cell)}; pass "
                    f"{argument('kind', 'multi_label')}"
                )
            if _as_object(cell):
                raise UserError(f"{where} must have text or numbers; received the object {shown(cell)}; name its value")
        if labels is None:
            _check_no_scores(cells, where)
        self.labels = in_order({*cells}) if labels is None else tuple(labels)
        if len(self.labels) < 2:
            raise UserError(
                f"{where} must have at least two different labels; received "
                f"{', '.join(self.labels)[:200] or 'none'}; name the labels, or for scores choose regression"
            )
        self._indices = _indices(self.labels)
        _check_numbers(cells, self.labels, numbered=numbered, where=where)

    def value(self, cell: str) -> int:
        """Returns a cell's class index; raises `Problem`."""
        if cell not in self._indices:
            raise Problem(f"the label must be one of {', '.join(self.labels)[:200]}; received {shown(cell)}")
        return self._indices[cell]


class LabelSetColumn:
    """A column with any number of labels per row: names, indices, or vectors of 0 and 1.

    Args:
      cells: stripped cells.
      labels: labels in logit order; None for those in the column.
      separator: separator between labels in a cell without a list.
      numbered: whether cells may be indices into `labels`, or vectors in their order.
      where: start of messages: source and column.
    Raises:
      UserError: the column has no labels, vectors without names, or an ambiguous form.
    """

    def __init__(
        self, cells: Sequence[str], labels: Sequence[str] | None, *, separator: str, numbered: bool, where: str
    ) -> None:
        self._where, self._separator = where, separator
        lists = {cell: _as_list(cell) for cell in {*cells} if cell}
        texts = [cell for cell, parts in lists.items() if parts is None]
        self._parts = {cell: parts for cell, parts in lists.items() if parts is not None} | self._split(texts)
        an_object = next((cell for cell in texts if cell not in (labels or ()) and _as_object(cell)), None)
        if an_object is not None:
            raise UserError(
                f"{where} must have lists or text; received the object {shown(an_object)}; list the names of its labels"
            )
        nested = (part for parts in lists.values() for part in parts or () if _as_object(part) or _as_list(part))
        if (part := next(nested, None)) is not None:
            raise UserError(
                f"{where} must have lists of text or numbers; received {shown(part)} in one; name its value"
            )
        self._parts[""] = []
        sets = [self._parts[cell] for cell in cells]
        self.width = self._vector_width(sets, labels, is_text=bool(texts))
        self.labels = (
            in_order({part for of_row in sets for part in of_row if part}) if labels is None else tuple(labels)
        )
        if not self.labels:
            raise UserError(f"{where} must have at least one label; received none")
        if self.width and not numbered:
            raise UserError(
                f"{where} has vectors of 0 and 1, whose order this file does not say; list the labels in their order "
                f"with {argument('label_names')}, such as {argument('label_names', self.labels)}"
            )
        self._indices = _indices(self.labels)
        if not self.width:
            parts = [part for of_row in sets for part in of_row if part]
            _check_numbers(parts, self.labels, numbered=numbered, where=where)

    def value(self, cell: str) -> list[int]:
        """Returns 0 or 1 for each label; raises `Problem`."""
        parts = self._parts[cell]
        if self.width:
            if len(parts) != self.width or not all(part in _BITS for part in parts):
                raise Problem(f"labels must be a vector of {self.width} zeros and ones; received {shown(cell)}")
            return [_BITS[part] for part in parts]
        unknown = [part for part in parts if part and part not in self._indices]
        if unknown:
            received = ", ".join(map(shown, unknown))[:200]
            raise Problem(f"labels must be from {', '.join(self.labels)[:200]}; received {received}")
        present = {self._indices[part] for part in parts if part}
        return [int(index in present) for index in range(len(self.labels))]

    def _split(self, cells: Sequence[str]) -> dict[str, list[str]]:
        """Splits cells without lists."""
        if all(_BITS_IN_A_CELL.fullmatch(cell) for cell in cells):
            return {cell: re.split(r"\s*[,;\s]\s*", cell) for cell in cells}
        parts = {cell: [part.strip() for part in cell.split(self._separator)] for cell in cells}
        if parts and all(len(part) == 1 for part in parts.values()):
            digits = all(re.fullmatch("[01]{2,}", cell) for cell in cells) and len({len(cell) for cell in cells}) == 1
            if digits and any(cell.startswith("0") for cell in cells):
                return {cell: [*cell] for cell in cells}
        return parts

    def _vector_width(self, sets: Sequence[list[str]], labels: Sequence[str] | None, *, is_text: bool) -> int:
        """Returns the length of vectors; 0 for names or indices. Raises `UserError` for ambiguous or unnamed ones."""
        full = [of_row for of_row in sets if of_row]
        named = {*(labels or ())}
        widths = {len(of_row) for of_row in full}
        bits = bool(full) and all(part in _BITS for of_row in full for part in of_row)
        # Only vectors repeat 0 and 1.
        repeats = any(len({*of_row}) < len(of_row) and {*of_row} <= _BITS.keys() for of_row in full)
        words = any(not is_whole_number(part) and part not in named for of_row in full for part in of_row)
        sure = repeats or (bits and words)
        if not (bits or sure):
            self._check_no_other_vectors(full, named)
            return 0
        if labels is None:
            if len(widths) > 1 and not sure:
                return 0
            self._refuse_unnamed(full, widths)
        assert labels is not None
        if sure:
            return len(labels)
        # In all rows, [0, 1] could also be both labels, and [0] the first; both orders are vectors of two labels.
        alike = {(*of_row,) for of_row in full} in ({("0", "1")}, {("0",)})
        fits = widths == {len(labels)}
        if (fits and (alike or {"0", "1"} & named)) or (widths == {2} and not fits and not {"0", "1"} & named):
            raise UserError(
                f"{self._where}: {shown(full[0])} could be a vector or the numbers of labels; write the labels' names"
            )
        if fits:
            return len(labels)
        if is_text and widths == {1} and not {"0", "1"} & named:
            raise UserError(
                f"{self._where} must have the labels {', '.join(labels)[:200]}; received 0 and 1 alone; write their "
                f"names, or pass a column for each label, such as {argument('label', ('toxic', 'obscene'))}"
            )
        return 0

    def _refuse_unnamed(self, full: Sequence[list[str]], widths: set[int]) -> None:
        if len(widths) > 1:
            shortest = min(full, key=len), max(full, key=len)
            raise UserError(
                f"{self._where} must have vectors of one length; received {shown(shortest[0])} and {shown(shortest[1])}"
                "; write a value for each label"
            )
        width = max(widths)
        form = f"vectors of {width} zeros and ones" if width > 1 else "0 and 1 alone"
        names = tuple(f"name{number}" for number in range(1, width + 1))
        raise UserError(
            f"{self._where} has {form}, without the names of labels; received {shown(full[0])}; name "
            f"{'them' if width > 1 else 'the label'} in order, such as {argument('label_names', names)}"
        )

    def _check_no_other_vectors(self, full: Sequence[list[str]], named: set[str]) -> None:
        """Refuses numbers that name no label: probabilities, counts, missing values."""
        for of_row in full:
            numbers = [part for part in of_row if _NUMBER.fullmatch(part) and part not in named]
            odd = next((part for part in numbers if not is_whole_number(part) or part.startswith("-")), None)
            if odd is not None or len({*numbers}) < len(numbers):
                raise UserError(
                    f"{self._where} must have names, whole numbers without repetition, or vectors of 0 and 1; received "
                    f"{shown(of_row)}; round probabilities to 0 and 1, and leave out rows with missing labels"
                )


class FlagColumns:
    """A column for each label, with 0 or 1 in every row.

    Args:
      columns: the columns, which name the labels.
      labels: the same names in logit order; None for column order.
      where: start of messages.
    Raises:
      UserError: columns and labels differ.
    """

    def __init__(self, columns: Sequence[str], labels: Sequence[str] | None, where: str) -> None:
        self.labels = tuple(labels or columns)
        if sorted(self.labels) != sorted(columns):
            raise UserError(
                f"{where} the label columns must be the labels {', '.join(self.labels)[:200]}; received "
                f"{', '.join(columns)[:200]}; rename the columns, or leave {argument('label_names')} out"
            )

    def value(self, cells: Mapping[str, str]) -> list[int]:
        """Returns 0 or 1 for each label; raises `Problem`."""
        return [self._flag(label, cells[label].strip()) for label in self.labels]

    @staticmethod
    def _flag(label: str, cell: str) -> int:
        if cell not in _BITS:
            raise Problem(f"column {label!r} must have 0 or 1, or false or true; received {shown(cell)}")
        return _BITS[cell]


def _as_list(cell: str) -> list[str] | None:
    """Returns a list cell's elements, as JSON, Python and NumPy write it; None for any other text."""
    if not cell.startswith("[") or not cell.endswith("]") or len(cell) > _MOST_LITERAL_CHARACTERS:
        return None
    with contextlib.suppress(UserError):
        return [_element(value) for value in parse_json(cell, "the cell")]
    with contextlib.suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return [_element(value) for value in ast.literal_eval(cell)]
    inner = cell[1:-1].split()
    return inner if inner and all(len(part) < 10 and _NUMBER.fullmatch(part) for part in inner) else None


def _element(value: Any) -> str:
    return json_text(list(value) if isinstance(value, tuple) else value).strip()


def _as_object(cell: str) -> bool:
    if not cell.startswith("{"):
        return False
    with contextlib.suppress(UserError):
        return isinstance(parse_json(cell, "the cell"), dict)
    return False


def _indices(labels: Sequence[str]) -> dict[str, int]:
    """Maps cells to label indices. Without labels that are whole numbers, an index is a cell, too."""
    indices = {label: index for index, label in enumerate(labels)}
    if not any(map(is_whole_number, labels)):
        indices |= {str(index): index for index in range(len(labels))}
    return indices


def _check_no_scores(cells: Sequence[str], where: str) -> None:
    """Refuses numbers that are no classes."""
    counts = Counter(cells)
    if not counts or not all(map(_NUMBER.fullmatch, counts)):
        return
    received = f"received {listed(list(counts)[:3])}"
    fractions = [cell for cell in counts if not _whole_value(cell)]
    remedy = f"pass {argument('kind', 'regression')}, or name the classes with {argument('label_names')}"
    if any("," in cell for cell in fractions):
        raise UserError(
            f"{where} looks like scores with a decimal comma; {received}; write a decimal point and {remedy}"
        )
    if fractions or len(counts) > max(_FEW_NUMBERS, len(cells) / 2):
        raise UserError(f"{where} looks like scores: {len(counts)} different numbers; {received}; {remedy}")
    values: dict[str, str] = {}
    for cell in counts:
        other = values.setdefault(_whole_value(cell), cell)
        if other != cell:
            raise UserError(
                f"{where} must write a number in one way; received {shown(other)} and {shown(cell)}; {remedy}"
            )


def _whole_value(cell: str) -> str:
    """Returns a number as a whole number without leading zeros; empty for a fraction."""
    if is_whole_number(cell.removeprefix("+")):
        return re.sub(r"^(-?)0+(?=\d)", r"\1", cell.removeprefix("+"))
    value = float(cell.replace(",", "."))
    return "" if not math.isfinite(value) or value % 1 else str(int(value))


def _check_numbers(cells: Sequence[str], labels: tuple[str, ...], *, numbered: bool, where: str) -> None:
    """Refuses indices if the label order was not chosen for this file."""
    if not numbered and not any(map(is_whole_number, labels)) and any(map(is_whole_number, cells)):
        numbers = ", ".join(map(str, range(len(labels))))
        raise UserError(
            f"{where} must have the labels {', '.join(labels)}; received whole numbers; if they are indices, list the "
            f"labels for {numbers} in this order with {argument('label_names')}, such as "
            f"{argument('label_names', labels)}, or use {argument('task', python='pb.data.glue')}"
        )
