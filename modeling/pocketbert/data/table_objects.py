"""Rows of labelled text that are already in memory: DataFrames, lists, dicts of columns, data sets of other libraries.

No library is imported for it: an object counts as what its attributes say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pocketbert.data.reading import Row, json_text, listed, shown
from pocketbert.errors import UserError

_ACCEPTED = (
    "a DataFrame, a dict of columns, a list of dicts or of (text, label) pairs, a data set with column_names, or a "
    "tf.data.Dataset"
)


def name_of(source: object) -> str:
    """Name of an object in messages, for example `the DataFrame`."""
    return "the tf.data.Dataset" if hasattr(source, "as_numpy_iterator") else f"the {type(source).__name__}"


def splits_of(source: object) -> Mapping[str, Any] | None:
    """The mapping itself where it holds tables by split (`train`, `validation`), else None."""
    if isinstance(source, Mapping) and "train" in source:
        train = source["train"]
        is_table = isinstance(train, Mapping) or any(
            hasattr(train, name) for name in ("columns", "column_names", "as_numpy_iterator")
        )
        if is_table or (isinstance(train, list) and train and isinstance(train[0], Mapping | tuple)):
            return source
    return None


def class_names(source: object, column: str) -> tuple[str, ...] | None:
    """The labels' names where a data set knows them (`features[column].names`), else None."""
    features = getattr(source, "features", None)
    names = getattr(features[column], "names", None) if isinstance(features, Mapping) and column in features else None
    return tuple(names) if names else None


def object_rows(source: object, text: str, pair: str | None, label: str | None) -> Iterator[Row]:
    """The rows of an object, their values as the texts that a file would hold.

    Args:
      source: a DataFrame (`columns`), a data set of `datasets` (`column_names`), a mapping from columns to values, a
        list of mappings, or a `tf.data.Dataset` of mappings. The elements of the last two may also be tuples: text
        and label, (text, second text) and label, or a mapping and the label.
      text: the column of the text; the name that a tuple's first value gets.
      pair: the column of the second text, or None.
      label: the column of the label, or None.
    Yields:
      The row's number from 0, and its cells or what is wrong with it.
    Raises:
      UserError: an object of another kind, a column that is missing, columns of different lengths.
    """
    wanted = [column for column in (text, pair, label) if column]
    columns = _columns(source)
    if columns is not None:
        return _rows_of_columns(source, columns, wanted)
    if hasattr(source, "as_numpy_iterator"):
        return _rows_of_elements(_unbatched(source), text, pair, label)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return _rows_of_elements(source, text, pair, label)
    raise UserError(f"a table in memory must be {_ACCEPTED}; received {shown(source)}; convert it to one of them")


def _columns(source: Any) -> Sequence[str] | None:
    """The columns' names of an object that has columns."""
    if isinstance(source, Mapping):
        return [*source]
    for attribute in ("column_names", "columns"):
        if hasattr(source, attribute):
            return [*getattr(source, attribute)]
    return None


def _rows_of_columns(source: Any, columns: Sequence[str], wanted: Sequence[str]) -> Iterator[Row]:
    for column in wanted:
        if column not in columns:
            raise UserError(
                f"{name_of(source)} must have the column {column!r}; received {listed(columns)}; name a column that "
                "it has"
            )
    values = {column: [*source[column]] for column in wanted}
    if len(sizes := {len(each) for each in values.values()}) > 1:
        raise UserError(
            f"the columns of {name_of(source)} must be equally long; received "
            + ", ".join(f"{column!r} with {len(each)}" for column, each in values.items())
            + "; give one value a row"
        )
    for number in range(sizes.pop()):
        yield _row(number, {column: values[column][number] for column in wanted})


def _rows_of_elements(elements: Iterable[Any], text: str, pair: str | None, label: str | None) -> Iterator[Row]:
    for number, element in enumerate(elements):
        try:
            cells = _named(element, text, pair, label)
        except ValueError as error:
            yield number, str(error)
        else:
            yield _row(number, cells)


def _named(element: Any, text: str, pair: str | None, label: str | None) -> Mapping[str, Any]:
    """An element's values by their columns.

    Raises:
      ValueError: it is of no known form; the message says so.
    """
    if isinstance(element, Mapping):
        return element
    if isinstance(element, tuple | list) and len(element) == 2 and label:
        texts, value = element
        if isinstance(texts, Mapping):
            return {**texts, label: value}
        if isinstance(texts, tuple | list) and len(texts) == 2 and pair:
            return {text: texts[0], pair: texts[1], label: value}
        if pair is None and not isinstance(texts, tuple | list):
            return {text: texts, label: value}
    wanted = "((text, second text), label)" if pair else "(text, label)"
    raise ValueError(f"the row must be a dict of columns or {wanted}; received {shown(element)}")


def _unbatched(dataset: Any) -> Iterable[Any]:
    """A `tf.data.Dataset` one example at a time."""
    spec = dataset.element_spec
    while isinstance(spec, Mapping | tuple):
        spec = next(iter(spec.values() if isinstance(spec, Mapping) else spec))
    return (dataset.unbatch() if spec.shape.rank else dataset).as_numpy_iterator()


def _row(number: int, cells: Mapping[str, Any]) -> Row:
    try:
        return number, {str(column): as_cell(value) for column, value in cells.items()}
    except UnicodeDecodeError as error:
        return number, f"texts must be UTF-8; received byte 0x{error.object[error.start]:02x}"


def as_cell(value: Any) -> str:
    """A value as a file would hold it: nothing for None and NaN, 1 for 1.0, JSON for lists.

    Raises:
      UnicodeDecodeError: bytes that are not UTF-8.
    """
    if hasattr(value, "tolist"):
        # NumPy's arrays and scalars.
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    # pandas.NA compares with nothing, NaN not even with itself.
    if type(value).__name__ == "NAType" or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, tuple | list):
        return json_text([as_cell(each) for each in value])
    return json_text(value if isinstance(value, bool | int | float | str | dict | None) else str(value))
