"""Data for several heads on one encoder: a table with a column for each head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.configs import TASK_RULES, TaskConfig
from pocketbert.data.constructors import divided
from pocketbert.data.examples import Examples
from pocketbert.data.readers import table_objects
from pocketbert.data.readers.iob import tags_of_types, types_of_tags
from pocketbert.data.readers.tables import LABEL_SEPARATOR, read_table
from pocketbert.data.readers.tag_columns import read_tag_column
from pocketbert.data.readers.tagged_texts import TaggedTexts
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.heads_config import part_kinds


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
) -> TaskData:
    """Reads a table of texts for several heads on one encoder, such as an intent and its slots.

    Example:
      ```python
      data = pb.data.heads("requests.jsonl", {"intent": "classification", "slots": "token_classification"})
      ```

    Args:
      source: training table; see `table`.
      kinds: name of each head → classification, multi_label, regression or token_classification. Names have letters and
        digits.
      text: column of the text.
      labels: name of a head → column of its labels; the name itself for the others. For token_classification a cell has
        a tag for each word that white space separates, such as `O B-city`, or a list of spans; see `tagged`.
      weights: name of a head → weight of its loss in the sum; 1 for the others.
      dev: table with the same columns, to select the best checkpoint; None uses a tenth of the texts.
      test: table with the same columns for a final score.
      label_separator: separator of the labels in a cell (`multi_label`).
      separator: column separator of a `.csv` file: one character, or `tab`.
      skip_bad_rows: skip rows that cannot be read for one of the heads, and log their number.

    Returns:
      The task with training examples and dev split.

    Raises:
      UserError: an unknown kind, a column or weight of a head that is not there, or unreadable rows.
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
    splits = table_objects.splits_of(source)
    if splits is not None:
        source = splits["train"]
        dev = splits.get("validation", splits.get("dev")) if dev is None else dev
    known_kinds = part_kinds(TASK_RULES)
    if unknown := [kind for kind in kinds.values() if kind not in known_kinds]:
        raise UserError(f"the kind of a head must be one of {', '.join(known_kinds)}; received {', '.join(unknown)}")
    train, label_names = _read(source, {name: (kind, None) for name, kind in kinds.items()}, **columns)
    weight_of = dict(weights or {})
    parts = tuple(
        TaskConfig(kind=kind, name=name, labels=label_names[name], weight=weight_of.get(name))
        for name, kind in kinds.items()
    )
    task = TaskConfig(kind="several", tasks=parts)
    of_dev, of_test = (None if table is None else read_heads(table, parts, **columns) for table in (dev, test))
    return TaskData(task=task, **divided(train, of_dev), test=of_test)


def read_heads(source: Any, parts: Sequence[TaskConfig], **columns: Any) -> SharedTexts:
    """Reads a table for heads with known labels; `columns` are those of `heads`."""
    return _read(source, {part.name: (part.kind, part.labels) for part in parts}, **columns)[0]


def _read(
    source: Any,
    heads_read: Mapping[str, tuple[str, Sequence[str] | None]],
    *,
    text: str = "text",
    labels: Mapping[str, str] | None = None,
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> tuple[SharedTexts, dict[str, tuple[str, ...]]]:
    """The texts, and the labels of each head in the order of its logits.

    `heads_read` maps names to kinds and labels, or None for the labels in the table; for the others see `heads`.
    """
    options: dict[str, Any] = {"separator": separator, "skip_bad_rows": skip_bad_rows}
    read: dict[str, tuple[Examples | TaggedTexts, list[str]]] = {}
    label_names: dict[str, tuple[str, ...]] = {}
    for name, (kind, names) in heads_read.items():
        column = (labels or {}).get(name, name)
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
    # Rows that cannot be read for one head are left out for all.
    first, lines = next(iter(read.values()))
    readable = set.intersection(*(set(ids) for _, ids in read.values()))
    shared = [line for line in lines if line in readable]
    if not shared:
        raise UserError(f"{first.source}: there must be a row that can be read for all heads; received none")
    parts: dict[str, Examples | TaggedTexts] = {}
    for name, (part, ids) in read.items():
        places = {line: index for index, line in enumerate(ids)}
        parts[name] = part if len(ids) == len(shared) else part.select([places[line] for line in shared])
    return SharedTexts(parts, shared, first.skipped_rows + len(lines) - len(shared)), label_names
