"""Known question data sets, and their file names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert_runtime.json_reading import parse_json

_MOST_ROW_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class QuestionTask:
    """A data set in SQuAD's format.

    Attributes:
      files: split → file name pattern, with a `*` for each language if there is one file per language or pair.
      languages: whether to compare answers by the paragraph's language (the first `*`), as MLQA does.
    """

    files: Mapping[str, str]
    languages: bool = False


QUESTION_TASKS: dict[str, QuestionTask] = {
    "squad": QuestionTask(files={"train": "train-v1.1.json", "dev": "dev-v1.1.json"}),
    "squad2": QuestionTask(files={"train": "train-v2.0.json", "dev": "dev-v2.0.json"}),
    "tydiqa": QuestionTask(files={"train": "tydiqa.goldp.en.train.json", "dev": "tydiqa.goldp.*.dev.json"}),
    "mlqa": QuestionTask(
        files={"dev": "dev-context-*-question-*.json", "test": "test-context-*-question-*.json"}, languages=True
    ),
}


def is_question_file(path: str | None) -> bool:
    """Returns whether a file has questions: .json, or .jsonl with a context and answers in the first row."""
    if path is None or not path.lower().endswith((".json", ".jsonl")):
        return False
    if path.lower().endswith(".json"):
        return True
    try:
        with open(path, "rb") as stream:
            row = parse_json(stream.readline(_MOST_ROW_BYTES), path)
    except (OSError, UserError):
        # The table reader reports the error.
        return False
    return isinstance(row, dict) and row.keys() >= {"question", "context", "answers"}


def question_paths(name: str, folder: str | os.PathLike[str], split: str) -> dict[str, Path]:
    """Finds a split's files.

    Returns:
      Languages (`en`; for MLQA the paragraph's and the question's, `en-de`; else `""`) → path, in alphabetical order.
    Raises:
      UserError: an unknown split, or no file.
    """
    task = QUESTION_TASKS[name]
    if split not in task.files:
        remedy = "; train on another data set, for example squad" if split == "train" else ""
        raise UserError(f"{name} has the splits {', '.join(task.files)}; received {split}{remedy}")
    form = task.files[split]
    pattern = re.compile("([a-z]+)".join(map(re.escape, form.split("*"))))
    paths = {}
    for path in sorted(Path(folder).glob(form)):
        if match := pattern.fullmatch(path.name):
            paths["-".join(match.groups())] = path
    if not paths:
        raise UserError(f"{folder}: {name} needs the file {form}; found none; pass the folder of the data set")
    return paths


def read_questions(name: str, folder: str | os.PathLike[str], split: str) -> QuestionFile:
    """Reads a split's questions; in English if there are several languages. Raises `UserError` without such a file."""
    paths = question_paths(name, folder, split)
    if len(paths) == 1:
        return QuestionFile(next(iter(paths.values())))
    for english in ("en", "en-en"):
        if english in paths:
            return QuestionFile(paths[english])
    raise UserError(f"{folder}: several languages must include English; found {', '.join(paths)}")
