"""Data for several heads on one encoder: a table with a column for each head, or a table for each head."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert.configs import TASK_RULES, TaskConfig
from pocketbert.data.constructors import divided
from pocketbert.data.examples import Examples
from pocketbert.data.readers import table_objects
from pocketbert.data.readers.iob import tags_of_types, types_of_tags
from pocketbert.data.readers.tables import LABEL_SEPARATOR, read_table, rows_by_id
from pocketbert.data.readers.tag_columns import read_tag_column
from pocketbert.data.readers.tagged_texts import TaggedTexts, is_tagged_file, read_tagged
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.data.soft_heads import SoftHeads
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_runtime.heads_config import part_kinds

# Head name → kind, and labels in logit order or None for those in the table.
_Heads = Mapping[str, tuple[str, Sequence[str] | None]]


def heads(
    source: Any,
    kinds: Mapping[str, str],
    *,
    text: str = "text",
    labels: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
    dev: Any = None,
    test: Any = None,
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
    soft_labels: Sequence[str] = (),
) -> TaskData:
    """Reads texts for several heads on one encoder, such as an intent and its slots.

    A text may have labels for some heads only: leave the other cells empty, or give each head its own table. The text
    then counts only in these heads' losses and metrics.

    Example:
      ```python
      data = pb.data.heads("requests.jsonl", {"intent": "classification", "slots": "token_classification"})
      ```

    Args:
      source: training table with a column for each head, see `table`; or head name → its table. Equal texts in several
        tables are one example. A file for token_classification may also be a CoNLL file.
      kinds: head name → classification, multi_label, regression or token_classification. Names have letters and digits.
      text: text column.
      labels: head name → label column; the head's name for the others. For token_classification, a cell has a tag for
        each word between white space, such as `O B-city`, or a list of spans; see `tagged`. An empty cell has no label.
        For multi_label, it says that no label applies, and only a row without the column has none.
      weights: head name → weight of its loss in the sum; 1 for the others.
      dev: table or tables with the same columns, to select the best checkpoint; None draws a tenth for each head.
      test: table or tables with the same columns for a final score.
      label_separator: separator between labels in a cell (`multi_label`).
      separator: column separator in a `.csv` file: one character, or `tab`.
      skip_bad_rows: skip rows that are unreadable for any head, and log their number.
      soft_labels: for distillation, `("probabilities",)` for a teacher's answers in a .jsonl file; see `soft_heads`.
    Raises:
      UserError: an unknown kind, a column or weight for an unknown head, a head without labels, or unreadable rows.
    """
    for what, of_heads in (("labels", labels), ("weights", weights)):
        if unknown := [name for name in of_heads or () if name not in kinds]:
            raise UserError(f"{what} must be for the heads {', '.join(kinds)}; received {', '.join(unknown)}")
    columns: dict[str, Any] = {
        "text": text,
        "labels": labels,
        "label_separator": label_separator,
        "separator": separator,
        "skip_bad_rows": skip_bad_rows,
    }
    splits = None if _are_tables(source, kinds, text) else table_objects.splits_of(source)
    if splits is not None:
        source = splits["train"]
        dev = splits.get("validation", splits.get("dev")) if dev is None else dev
    known_kinds = part_kinds(TASK_RULES)
    if unknown := [kind for kind in kinds.values() if kind not in known_kinds]:
        raise UserError(f"the kind of a head must be one of {', '.join(known_kinds)}; received {', '.join(unknown)}")
    soft, known_labels = None, dict[str, tuple[str, ...]]()
    if soft_labels:
        if skip_bad_rows:
            raise UserError(f"soft labels need all rows; received {argument('skip_bad_rows', True)}; leave it out")
        soft = SoftHeads(source, soft_labels, kinds, {name: (labels or {}).get(name, name) for name in kinds})
        source, known_labels = soft.plain, soft.labels()
    train, label_names = _read(
        source, {name: (kind, known_labels.get(name)) for name, kind in kinds.items()}, **columns
    )
    weight_of = dict(weights or {})
    parts = tuple(
        TaskConfig(kind=kind, name=name, labels=label_names[name], weight=weight_of.get(name))
        for name, kind in kinds.items()
    )
    task = TaskConfig(kind="several", tasks=parts)
    train = train if soft is None else soft.softened(train, parts)

    def read_split(table: Any) -> SharedTexts | None:
        plain = table if soft is None or table is None else soft.without_answers(table)
        texts = None if plain is None else read_heads(plain, parts, **columns)
        return texts if plain is table or texts is None else texts.of_source(os.fspath(table))

    of_dev, of_test = read_split(dev), read_split(test)
    return TaskData(task=task, **divided(train, of_dev), test=of_test)


def read_heads(source: Any, parts: Sequence[TaskConfig], **columns: Any) -> SharedTexts:
    """Reads a table or tables for heads with known labels; for `columns` see `heads`."""
    return _read(source, {part.name: (part.kind, part.labels) for part in parts}, **columns)[0]


def _are_tables(source: Any, names: Collection[str], text: str) -> bool:
    """Returns whether `source` maps heads to tables, not columns to cells; raises `UserError` for an unpaired one."""
    if not isinstance(source, Mapping) or not source or text in source:
        return False
    unknown = [str(name) for name in source if name not in names]
    if unknown and not all(isinstance(table, str | os.PathLike) for table in source.values()):
        return False
    if unknown:
        raise UserError(f"tables must be for the heads {', '.join(names)}; received {', '.join(unknown)}")
    if missing := [name for name in names if name not in source]:
        raise UserError(
            f"each head must have a table; received those of {', '.join(source)}; add one for {', '.join(missing)}, or "
            f"a column {text!r}"
        )
    return True


def _read(
    source: Any, heads_read: _Heads, *, text: str = "text", **columns: Any
) -> tuple[SharedTexts, dict[str, tuple[str, ...]]]:
    """Reads the texts in one or several tables, and each head's labels in logit order."""
    if _are_tables(source, heads_read, text):
        shared, label_names = _read_tables(source, heads_read, text=text, **columns)
    else:
        shared, label_names = _read_table(source, heads_read, text=text, **columns)
    if shared.rows is not None:
        counts = ", ".join(f"{len(part)} for {name}" for name, part in shared.parts.items())
        log_info(f"{shared.source}: {len(shared)} texts, of which a part has labels for each head: {counts}")
    return shared, label_names


def _read_tables(
    tables: Mapping[str, Any], heads_read: _Heads, **columns: Any
) -> tuple[SharedTexts, dict[str, tuple[str, ...]]]:
    """Joins the tables' texts in order. A text in several tables is one example."""
    heads_of: dict[Any, list[str]] = {}
    for name in heads_read:
        table = tables[name]
        heads_of.setdefault(os.fspath(table) if isinstance(table, str | os.PathLike) else id(table), []).append(name)
    places: dict[tuple[str, int], int] = {}
    ids: list[str] = []
    parts: dict[str, Examples | TaggedTexts] = {}
    rows: dict[str, np.ndarray] = {}
    label_names: dict[str, tuple[str, ...]] = {}
    skipped = 0
    for names in heads_of.values():
        of_table, of_names = _read_table(tables[names[0]], {name: heads_read[name] for name in names}, **columns)
        label_names |= of_names
        skipped += of_table.skipped_rows
        place_of, repeated = [], Counter[str]()
        for content, line in zip(of_table.texts, of_table.ids, strict=True):
            # A text repeated in one table is several examples.
            place_of.append(places.setdefault((content, repeated[content]), len(places)))
            repeated[content] += 1
            if len(places) > len(ids):
                ids.append(f"{names[0]}:{line}")
        for name in names:
            of_head = np.array(place_of, np.int64)[of_table.rows_of(name)]
            order = np.argsort(of_head)
            parts[name], rows[name] = of_table.parts[name].select(order), of_head[order]
    in_order = {name: parts[name] for name in heads_read}
    return SharedTexts(in_order, ids, skipped, {name: rows[name] for name in heads_read}), label_names


def _read_table(
    source: Any,
    heads_read: _Heads,
    *,
    text: str = "text",
    labels: Mapping[str, str] | None = None,
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> tuple[SharedTexts, dict[str, tuple[str, ...]]]:
    """Reads one table; for the arguments see `heads`."""
    column_of = {name: (labels or {}).get(name, name) for name in heads_read}
    if len(heads_read) == 1 and isinstance(source, str | os.PathLike) and is_tagged_file(source):
        return _read_conll(source, heads_read, (labels or {}).get(next(iter(heads_read))), skip_bad_rows)
    lines, without = _rows_without_label(source, text, column_of, heads_read, separator)
    read: dict[str, tuple[Examples | TaggedTexts, list[str]]] = {}
    label_names: dict[str, tuple[str, ...]] = {}
    for name, (kind, names) in heads_read.items():
        column = column_of[name]
        options: dict[str, Any] = {
            "separator": separator,
            "skip_bad_rows": skip_bad_rows,
            "without": without[name],
        }
        if TASK_RULES[kind].reads == "spans":
            types = None if names is None else types_of_tags(names)
            tagged, ids = read_tag_column(source, text=text, column=column, types=types, **options)
            if not types and not tagged.types:
                raise UserError(f"{tagged.source}: column {column!r} must have spans; received none; check the column")
            read[name], label_names[name] = (tagged, ids), tuple(names or tags_of_types(tagged.types))
            continue
        examples, label_names[name] = read_table(
            source,
            text_column=text,
            label_column=column,
            labels=names or None,
            numbered=False,
            kind=TASK_RULES[kind].label_form,
            label_separator=label_separator,
            **options,
        )
        read[name] = examples, examples.ids
    # A row that is unreadable for one head is left out for all.
    unreadable = {line for name, (_, ids) in read.items() for line in {*lines} - without[name] - {*ids}}
    shared = [line for line in lines if line not in unreadable]
    parts: dict[str, Examples | TaggedTexts] = {}
    rows: dict[str, np.ndarray] = {}
    for name, (part, ids) in read.items():
        places = {line: index for index, line in enumerate(ids)}
        rows[name] = np.array([row for row, line in enumerate(shared) if line in places], np.int64)
        parts[name] = part if len(ids) == len(rows[name]) else part.select([places[shared[row]] for row in rows[name]])
        if not len(rows[name]):
            of_head = "for all heads" if not shared else f"with a label for {name}"
            raise UserError(f"{part.source}: there must be a row that can be read {of_head}; received none")
    return SharedTexts(parts, shared, len(lines) - len(shared), rows), label_names


def _read_conll(
    source: str | os.PathLike[str], heads_read: _Heads, column: str | None, skip_bad_rows: bool
) -> tuple[SharedTexts, dict[str, tuple[str, ...]]]:
    """Reads a CoNLL file for a head with tags."""
    ((name, (kind, names)),) = heads_read.items()
    if TASK_RULES[kind].reads != "spans":
        raise UserError(f"{source}: a CoNLL file has tags of words; received it for {name}, {kind}; give a table")
    types = None if names is None else types_of_tags(names)
    tagged = read_tagged(source, types=types, label=column, skip_bad_rows=skip_bad_rows)
    if not types and not tagged.types:
        raise UserError(f"{source}: the training sentences must have spans; received none")
    ids = [str(index) for index in range(len(tagged))]
    return SharedTexts({name: tagged}, ids, tagged.skipped_rows), {name: tuple(names or tags_of_types(tagged.types))}


def _rows_without_label(
    source: Any, text: str, column_of: Mapping[str, str], heads_read: _Heads, separator: str
) -> tuple[list[str], dict[str, set[str]]]:
    """Returns all row ids, and for each head those without its label, except rows without any: these are bad rows."""
    rows = rows_by_id(source, text, [*column_of.values()], separator)
    where = source if isinstance(source, str | os.PathLike) else table_objects.name_of(source)
    without: dict[str, set[str]] = {}
    for name, (kind, _) in heads_read.items():
        column = column_of[name]
        # An empty multi-label cell says that no label applies.
        may_be_empty = TASK_RULES[kind].label_form == "multi_label"
        cells = {line: row.get(column) for line, row in rows.items() if row is not None}
        without[name] = {
            line for line, cell in cells.items() if cell is None or (not cell.strip() and not may_be_empty)
        }
        if cells and len(without[name]) == len(cells) and len(heads_read) > 1:
            raise UserError(
                f"{where}: column {column!r} must have a label in one row at least; received none; "
                f"check the column, or leave out {name}"
            )
    unlabelled = set.intersection(*without.values())
    return [*rows], {name: lines - unlabelled for name, lines in without.items()}
