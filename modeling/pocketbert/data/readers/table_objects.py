"""Tables in memory: DataFrames, lists, dicts of columns, data sets from other libraries.

Objects are recognized by their attributes, so none of these libraries is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pocketbert.data.readers.rows import Row, json_text, listed, shown
from pocketbert.errors import UserError

_ACCEPTED = (
    "a DataFrame, a dict of columns, a list of dicts or of (text, label) pairs, a data set with column_names, or a "
    "tf.data.Dataset"
)


def name_of(source: object) -> str:
    """Names an object for a message, for example `the DataFrame`."""
    return "the tf.data.Dataset" if hasattr(source, "as_numpy_iterator") else f"the {type(source).__name__}"


def splits_of(source: object) -> Mapping[str, Any] | None:
    """Returns `source` if it maps splits (`train`, `validation`) to tables, else None."""
    if isinstance(source, Mapping) and "train" in source:
        train = source["train"]
        is_table = isinstance(train, Mapping) or any(
            hasattr(train, name) for name in ("columns", "column_names", "as_numpy_iterator")
        )
        if is_table or (isinstance(train, list) and train and isinstance(train[0], Mapping | tuple)):
            return source
    return None


def class_names(source: object, column: str) -> tuple[str, ...] | None:
    """Returns a data set's label names (`features[column].names`), or None if it has none."""
    features = getattr(source, "features", None)
    feature = features[column] if isinstance(features, Mapping) and column in features else None
    # Label lists have a feature inside.
    names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    return tuple(names) if names else None


def column_names(source: Any) -> set[str] | None:
    """Returns the columns, or the members in all rows; None for tuples and data streams."""
    columns = _columns(source)
    if columns is None and isinstance(source, Sequence) and source and isinstance(source[0], Mapping):
        columns = [name for row in source if isinstance(row, Mapping) for name in row]
    return None if columns is None else set(columns)


def object_rows(source: object, text: str, pair: str | None, labels: Sequence[str] = ()) -> Iterator[Row]:
    """Yields an object's rows: the number from 0, and the cells as text or a message.

    Args:
      source: a DataFrame (`columns`), a Hugging Face data set (`column_names`), a mapping from columns to values, a
        list of mappings, or a `tf.data.Dataset` with mappings. Elements in the last two may also be tuples: (text,
        label), ((text, second text), label), or (mapping, label).
      text: text column.
      pair: second text column, or None.
      labels: label columns; tuples have one.
    Raises:
      UserError: another object type, a missing column, or columns with different lengths.
    """
    required = [column for column in (text, pair, *labels) if column]
    columns = _columns(source)
    if columns is not None:
        return _rows_of_columns(source, columns, required)
    label = labels[0] if len(labels) == 1 else None
    if hasattr(source, "as_numpy_iterator"):
        dataset: Any = source
        spec = dataset.element_spec
        while isinstance(spec, Mapping | tuple):
            spec = next(iter(spec.values() if isinstance(spec, Mapping) else spec))
        examples = (dataset.unbatch() if spec.shape.rank else dataset).as_numpy_iterator()
        return _rows_of_elements(examples, text, pair, label)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return _rows_of_elements(source, text, pair, label)
    raise UserError(f"a table in memory must be {_ACCEPTED}; received {shown(source)}; convert it to one of them")


def _columns(source: Any) -> Sequence[str] | None:
    """Returns an object's column names, or None if it has no columns."""
    if isinstance(source, Mapping):
        return [*source]
    for attribute in ("column_names", "columns"):
        if hasattr(source, attribute):
            return [*getattr(source, attribute)]
    return None


def _rows_of_columns(source: Any, columns: Sequence[str], required: Sequence[str]) -> Iterator[Row]:
    for column in required:
        if column not in columns:
            raise UserError(
                f"{name_of(source)} must have the column {column!r}; received {listed(columns)}; choose one of "
                "its columns"
            )
    values = {column: [*source[column]] for column in required}
    if len(sizes := {len(value) for value in values.values()}) > 1:
        raise UserError(
            f"the columns of {name_of(source)} must have the same length; received "
            + ", ".join(f"{column!r} with {len(cells)}" for column, cells in values.items())
            + "; pass one value per row"
        )
    for number in range(sizes.pop()):
        yield _row(number, {column: values[column][number] for column in required})


def _rows_of_elements(elements: Iterable[Any], text: str, pair: str | None, label: str | None) -> Iterator[Row]:
    for number, element in enumerate(elements):
        try:
            cells = _named(element, text, pair, label)
        except ValueError as error:
            yield number, str(error)
        else:
            yield _row(number, cells)


def _named(element: Any, text: str, pair: str | None, label: str | None) -> Mapping[str, Any]:
    """Returns an element's values by column. Raises `ValueError` for another form."""
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
    form = "((text, second text), label)" if pair else "(text, label)"
    raise ValueError(f"the row must be a dict of columns or {form}; received {shown(element)}")


def _row(number: int, cells: Mapping[str, Any]) -> Row:
    try:
        return number, {str(column): as_cell(value) for column, value in cells.items()}
    except UnicodeDecodeError as error:
        return number, f"texts must be UTF-8; received byte 0x{error.object[error.start]:02x}"


def as_cell(value: Any) -> str:
    """Formats a value as in a file: None and NaN as empty, 1.0 as 1, lists as JSON; only UTF-8 bytes are valid."""
    if hasattr(value, "tolist"):
        # A NumPy array or scalar.
        value = value.tolist()
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    # pandas.NA cannot be compared, and NaN does not equal itself.
    if type(value).__name__ == "NAType" or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, tuple | list):
        return json_text([as_cell(item) for item in value])
    return json_text(value if isinstance(value, bool | int | float | str | dict | None) else str(value))
