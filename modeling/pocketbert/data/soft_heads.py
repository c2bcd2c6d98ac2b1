"""Soft labels for several heads: each head's answer, as `predict --soft-labels` writes it into a .jsonl file.

A line is `{"text": "to Rome", "intent": {"label": "book", "probabilities": {"book": 0.9, "cancel": 0.1}}, "slots":
{"spans": [[3, 7, "LOC"]], "words": [[0, 2], [3, 7]], "probabilities": [null, {"O": 0.1, "B-LOC": 0.7, "I-LOC":
0.2}]}}`; for tags see `soft_tags`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import TASK_RULES, TaskConfig
from pocketbert.data.readers.rows import RowProblems, listed, shown
from pocketbert.data.readers.soft_labels import PROBABILITIES, checked_probabilities, normalized
from pocketbert.data.readers.soft_tags import json_rows, soft_tags, tags_in
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.errors import UserError
from pocketbert.notation import argument

_HALF = 0.5


class SoftHeads:
    """A file with each head's answers.

    Args:
      source: the file.
      columns: `probabilities`.
      kinds: head name → kind.
      column_of: head name → member with its answer.
    Attributes:
      plain: a row for each line, with the labels alone, for table readers.
    Raises:
      UserError: the file or a head cannot have soft labels.
    """

    def __init__(
        self, source: Any, columns: Sequence[str], kinds: Mapping[str, str], column_of: Mapping[str, str]
    ) -> None:
        is_file = isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".jsonl"
        if tuple(columns) != (PROBABILITIES,) or not is_file:
            raise UserError(
                f"soft labels of several heads are in {PROBABILITIES!r} of each head in a .jsonl file; received "
                f"{listed(columns)} and {shown(source)}; write the file with pocketbert predict, or see the page on "
                "distillation"
            )
        if scores := [f"{name} ({kind})" for name, kind in kinds.items() if not TASK_RULES[kind].min_labels]:
            option = argument("soft_label_columns", python="soft_labels")
            raise UserError(f"soft labels are for heads with labels; received {', '.join(scores)}; leave out {option}")
        self._path, self._kinds, self._column_of = Path(source), kinds, column_of
        self._rows, self.plain = self._read(source)

    def without_answers(self, source: Any) -> Any:
        """Returns another table, such as a dev split, unchanged, or a .jsonl file's labels alone if it has answers."""
        if not isinstance(source, str | os.PathLike) or Path(source).suffix.lower() != ".jsonl":
            return source
        rows, plain = self._read(source)
        return source if plain == [row for _, row in rows] else plain

    def _read(self, path: str | os.PathLike[str]) -> tuple[list[tuple[int, dict[str, Any]]], list[dict[str, Any]]]:
        """Returns the numbered lines in a file, and their labels alone."""
        try:
            rows = json_rows(path)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error
        rules = {column: TASK_RULES[self._kinds[name]] for name, column in self._column_of.items()}
        plain = [
            {name: _label(value, rules[name]) if name in rules else value for name, value in row.items()}
            for _, row in rows
        ]
        return rows, plain

    def labels(self) -> dict[str, tuple[str, ...]]:
        """Returns each head's labels, in the order of its first probabilities. Raises `UserError` without any."""
        names = {}
        for name, column in self._column_of.items():
            answers = [row[column].get(PROBABILITIES) for _, row in self._rows if isinstance(row.get(column), dict)]
            if TASK_RULES[self._kinds[name]].reads == "spans":
                names[name] = tags_in(answers, f"{self._path}: {column!r}")
                continue
            first = next((answer for answer in answers if isinstance(answer, dict)), {})
            if not first:
                raise UserError(f"{self._path}: {column!r} must have {PROBABILITIES!r}; received none; add them")
            names[name] = tuple(first)
        return names

    def softened(self, texts: SharedTexts, tasks: Sequence[TaskConfig]) -> SharedTexts:
        """Adds all heads' soft labels to the texts from `plain`. Raises `UserError` with all lines that lack them."""
        if texts.rows is not None or len(texts) < len(self._rows):
            raise UserError(
                f"{self._path}: each line must have the answers of all heads, tags with 'spans'; some lack one; write "
                "the file with pocketbert predict"
            )
        problems, parts = RowProblems(self._path), {}
        for task in tasks:
            part: Any = texts.parts[task.name]
            column, soft = self._column_of[task.name], list[Any]()
            for index, (line, row) in enumerate(self._rows):
                try:
                    answer = row.get(column)
                    if not isinstance(answer, dict):
                        raise ValueError(f"must be an object with {PROBABILITIES!r}; received {shown(answer)}")
                    if task.rules.reads == "spans":
                        soft.append(soft_tags(answer, part.texts[index], part.words[index], task.labels))
                    else:
                        soft.append(_probabilities(answer.get(PROBABILITIES), task))
                except ValueError as error:
                    problems.add(line, f"{column!r}: {error}")
            problems.raise_if_any()
            rows: Any = soft
            if task.rules.reads != "spans":
                rows = np.array(soft) if task.rules.label_form == "multi_label" else normalized(np.array(soft))
            parts[task.name] = dataclasses.replace(part, soft_labels=rows)
        return SharedTexts(parts, texts.ids).of_source(str(self._path))


def _label(answer: Any, rules: Any) -> Any:
    """Returns an answer's label, labels or spans; the most likely ones if it has none."""
    if not isinstance(answer, dict):
        return answer
    several = rules.label_form == "multi_label"
    member = "spans" if rules.reads == "spans" else "labels" if several else "label"
    probabilities = answer.get(PROBABILITIES)
    if answer.get(member) is not None or not isinstance(probabilities, dict):
        return answer.get(member)
    if several:
        return [label for label, value in probabilities.items() if value >= _HALF]
    return max(probabilities, key=lambda label: probabilities[label], default=None)


def _probabilities(answer: Any, task: TaskConfig) -> list[float]:
    """Returns the probabilities in label order. Raises `ValueError` without any."""
    if not isinstance(answer, dict) or {*answer} != {*task.labels}:
        received = listed(answer) if isinstance(answer, dict) else shown(answer)
        raise ValueError(f"{PROBABILITIES} must have the labels {listed(task.labels)}; received {received}")
    independent = task.rules.label_form == "multi_label"
    return checked_probabilities([answer[label] for label in task.labels], independent=independent)
