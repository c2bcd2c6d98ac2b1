"""Unlabelled texts; in distillation, a teacher gives the answers."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import TASK_RULES
from pocketbert.data.examples import Examples
from pocketbert.data.readers.rows import read_utf8
from pocketbert.data.readers.tables import SUFFIXES, read_table
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_runtime.heads_config import without_labels


def with_unlabelled(
    data: TaskData,
    source: Any,
    *,
    text: str = "text",
    pair: str | None = None,
    separator: str = ",",
    skip_bad_rows: bool = False,
    least_confidence: float | None = None,
) -> TaskData:
    """Adds unlabelled texts. Distillation learns the teacher's predictions for them.

    Labels are not read. Texts in the dev split, the test split or the training examples are left out and logged.

    Args:
      data: a task with an answer per text or pair, or several heads.
      source: a `.csv`, `.tsv` or `.jsonl` file, another file with a text per line, or an object as in `table`.
      text: text column.
      pair: second text column, for pairs.
      separator: column separator in a `.csv` file: one character, or `tab`.
      skip_bad_rows: skip rows without a text, and log their number.
      least_confidence: leave out texts if the teacher's best label has a lower probability; with several heads, if the
        least sure answer has. None for all.
    Raises:
      UserError: unreadable rows, pairs for single texts or the reverse, another kind of examples, or no text is left.
    """
    train, reads = data.train, TASK_RULES[data.task.kind].reads
    if reads not in ("table", "heads") or not isinstance(train, Examples | SharedTexts):
        raise UserError(f"unlabelled texts are for answers per text or pair; received them for {data.task.kind}")
    if least_confidence is not None and not 0 < least_confidence < 1:
        raise UserError(f"least_confidence must lie between 0 and 1; received {least_confidence:g}")
    if least_confidence is not None and (lacking := without_labels(data.task)):
        raise UserError(
            f"least_confidence needs labels with probabilities; received {lacking}; leave it out for scores"
        )
    if train.has_pairs != (pair is not None):
        needed = (
            "pairs: name the column of the second text" if train.has_pairs else "single texts: name no second column"
        )
        raise UserError(f"unlabelled texts must be as the training examples, {needed}")
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() not in SUFFIXES and pair is None:
        rows = _lines(Path(source))
    else:
        columns: dict[str, Any] = {
            "text_column": text,
            "pair_column": pair,
            "separator": separator,
            "skip_bad_rows": skip_bad_rows,
        }
        rows, _ = read_table(source, **columns)
    known = {"the dev split": set(data.dev.read_texts), "the training examples": set(train.read_texts)}
    if data.test is not None:
        known = {"the test split": set(data.test.read_texts), **known}
    counts = dict.fromkeys((*known, "other rows"), 0)
    kept: list[int] = []
    seen: set[Any] = set()
    for index, content in enumerate(rows.read_texts):
        place = next(
            (name for name, texts in known.items() if content in texts), "other rows" if content in seen else ""
        )
        if place:
            counts[place] += 1
        else:
            seen.add(content)
            kept.append(index)
    dropped = ", ".join(f"{count:,} that are also in {name}" for name, count in counts.items() if count)
    log_info(f"{rows.source}: {len(kept):,} unlabelled texts" + (f"; left out {dropped}" if dropped else ""))
    if not kept:
        raise UserError(f"{rows.source}: every text is known already; give other texts")
    return dataclasses.replace(data, unlabelled=rows.select(kept), least_confidence=least_confidence)


def joined(first: Examples, second: Examples) -> Examples:
    """Joins examples, without labels; with soft labels if both have them."""
    both = [examples.soft_labels for examples in (first, second) if examples.soft_labels is not None]
    soft = np.concatenate(both) if len(both) == 2 else None
    pairs = None if first.pairs is None or second.pairs is None else [*first.pairs, *second.pairs]
    ids = [f"{part}:{name}" for part, examples in enumerate((first, second)) for name in examples.ids]
    source = f"{first.source} and {second.source}"
    return Examples([*first.texts, *second.texts], pairs, None, ids, source, soft_labels=soft)


def _lines(path: Path) -> Examples:
    """Reads a file's lines that are not blank; ids are line numbers from 1."""
    lines = [(number, line.strip()) for number, line in enumerate(read_utf8(path).split("\n"), start=1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise UserError(f"{path}: the file must have a text per line; it has none")
    return Examples([line for _, line in lines], None, None, [str(number) for number, _ in lines], str(path))
