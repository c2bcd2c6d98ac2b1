"""The nine GLUE tasks in their official TSV files (Wang et al. 2019, https://gluebenchmark.com/tasks).

Labels have Hugging Face's order, so class indices agree with its fine-tuned models. Quotes are ordinary characters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.rows import RowProblems, parse_score, read_utf8, shown, tsv_rows
from pocketbert.errors import UserError, did_you_mean
from pocketbert.progress import log_info


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A GLUE task: head, metrics and file layout.

    Attributes:
      task: the head, with labels in logit order.
      folder: the task's folder in the GLUE download.
      text_column: first sentence's header.
      pair_column: second sentence's header, or None for single sentences.
      label_column: label header in the training and dev files.
      label_texts: label in the files → label in `task.labels`; empty if they are the same.
      metrics: GLUE's metrics, named as in `pocketbert.tasks.metrics`.
      main_metric: metric to select the best checkpoint.
      dev_splits: dev file names, without `.tsv`.
      test_splits: unlabelled test file names.
      files: split → paths in the GLUE download, if not `folder/split.tsv`.
      headless_columns: columns in training and dev files without a header (CoLA).
      broken_rows: maximum number of incomplete rows in the official labelled files. Published counts leave them out.
    """

    task: TaskConfig
    folder: str
    text_column: str
    pair_column: str | None = None
    label_column: str = "label"
    label_texts: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("accuracy",)
    main_metric: str = "accuracy"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headless_columns: tuple[str, ...] = ()
    broken_rows: int = 0

    @property
    def has_scores(self) -> bool:
        """Whether labels are scores instead of classes."""
        return not self.task.labels

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits accepted by `read_glue`."""
        return ("train", *self.dev_splits, *self.test_splits)


def _classification(name: str, *labels: str) -> TaskConfig:
    return TaskConfig(kind="classification", name=name, labels=labels)


GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(
        task=_classification("cola", "unacceptable", "acceptable"),
        folder="CoLA",
        text_column="sentence",
        label_texts={"0": "unacceptable", "1": "acceptable"},
        metrics=("matthews",),
        main_metric="matthews",
        headless_columns=("source", "label", "original_label", "sentence"),
    ),
    "sst2": GlueTask(
        task=_classification("sst2", "negative", "positive"),
        folder="SST-2",
        text_column="sentence",
        label_texts={"0": "negative", "1": "positive"},
    ),
    "mrpc": GlueTask(
        task=_classification("mrpc", "not_equivalent", "equivalent"),
        folder="MRPC",
        text_column="#1 String",
        pair_column="#2 String",
        label_column="Quality",
        label_texts={"0": "not_equivalent", "1": "equivalent"},
        metrics=("accuracy", "f1"),
        main_metric="f1",
    ),
    "stsb": GlueTask(
        task=TaskConfig(kind="regression", name="stsb"),
        folder="STS-B",
        text_column="sentence1",
        pair_column="sentence2",
        label_column="score",
        metrics=("pearson", "spearman"),
        main_metric="spearman",
    ),
    "qqp": GlueTask(
        task=_classification("qqp", "not_duplicate", "duplicate"),
        folder="QQP",
        text_column="question1",
        pair_column="question2",
        label_column="is_duplicate",
        label_texts={"0": "not_duplicate", "1": "duplicate"},
        metrics=("accuracy", "f1"),
        main_metric="f1",
        broken_rows=10,
    ),
    "mnli": GlueTask(
        task=_classification("mnli", "entailment", "neutral", "contradiction"),
        folder="MNLI",
        text_column="sentence1",
        pair_column="sentence2",
        label_column="gold_label",
        dev_splits=("dev_matched", "dev_mismatched"),
        test_splits=("test_matched", "test_mismatched", "diagnostic"),
        files={"diagnostic": ("diagnostic/diagnostic.tsv", "AX.tsv")},
    ),
    "qnli": GlueTask(
        task=_classification("qnli", "entailment", "not_entailment"),
        folder="QNLI",
        text_column="question",
        pair_column="sentence",
    ),
    "rte": GlueTask(
        task=_classification("rte", "entailment", "not_entailment"),
        folder="RTE",
        text_column="sentence1",
        pair_column="sentence2",
    ),
    "wnli": GlueTask(
        task=_classification("wnli", "not_entailment", "entailment"),
        folder="WNLI",
        text_column="sentence1",
        pair_column="sentence2",
        label_texts={"0": "not_entailment", "1": "entailment"},
    ),
}


def glue_task(name: str) -> GlueTask:
    """Returns the task called `name`. Raises `UserError` if there is none."""
    if name not in GLUE:
        raise UserError(f"no GLUE task {name!r}{did_you_mean(name, GLUE)}; the tasks are {', '.join(GLUE)}")
    return GLUE[name]


def read_glue(name: str, folder: str | os.PathLike[str], split: str) -> Examples:
    """Reads one split of a GLUE task, without labels for test files. Ids are the split and the row number from 0.

    Args:
      name: key in `GLUE`.
      folder: the task's folder, or the GLUE download with a folder for each task (`SST-2`, `MNLI`, …).
      split: `train`, `dev` or `test`. MNLI has `dev_matched`, `dev_mismatched`, `test_matched` and `test_mismatched`;
        `dev` and `test` are the matched ones. Its `diagnostic` is GLUE's AX, an unlabelled file.
    Raises:
      UserError: an unknown task or split, a missing or empty file, text that is not UTF-8, a missing column, or an
        unknown label. One error lists all bad rows with line and reason.
    """
    glue = glue_task(name)
    split = {"dev": glue.dev_splits[0], "test": glue.test_splits[0]}.get(split, split)
    if split not in glue.splits:
        raise UserError(f"no split {split!r} of {name}; its splits are {', '.join(glue.splits)}")
    path = _find(glue, Path(folder), split)
    labelled = split not in glue.test_splits
    rows = tsv_rows(read_utf8(path))
    if glue.headless_columns and labelled:
        columns = list(glue.headless_columns)
    else:
        columns = rows.pop(0)[1]
    places = _column_places(glue, path, columns, labelled)
    if not rows:
        raise UserError(f"{path}: line 2: the file has a header and no rows; it must have at least one example")

    problems = RowProblems(path)
    broken: list[int] = []
    texts, pairs, labels, ids = [], [], [], []
    for number, (line, cells) in enumerate(rows):
        if len(cells) < len(columns):
            broken.append(line)
            continue
        if len(cells) > len(columns):
            problems.add(line, f"the row must have {len(columns)} columns; received {len(cells)}")
            continue
        if labelled:
            try:
                labels.append(_label(glue, cells[places["label"]].strip()))
            except ValueError as error:
                problems.add(line, str(error))
                continue
        texts.append(cells[places["text"]])
        if glue.pair_column:
            pairs.append(cells[places["pair"]])
        ids.append(f"{split}-{number}")
    # Predictions for a test file are numbered by row, so no row may be skipped.
    if len(broken) > (glue.broken_rows if labelled else 0):
        for line in broken:
            problems.add(line, f"the row must have {len(columns)} columns, separated by tabs; received fewer")
    problems.raise_if_any()
    if broken:
        log_info(
            f"{path}: skipped {len(broken)} rows with missing columns, as other GLUE readers do (line {broken[0]}…)"
        )
    dtype = np.float32 if glue.has_scores else np.int32
    return Examples(
        texts=texts,
        pairs=pairs if glue.pair_column else None,
        labels=np.asarray(labels, dtype) if labelled else None,
        ids=ids,
        source=str(path),
    )


def _find(glue: GlueTask, folder: Path, split: str) -> Path:
    names = [*glue.files.get(split, (f"{glue.folder}/{split}.tsv",)), f"{split}.tsv"]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise UserError(
        f"{folder}: {glue.task.name} needs the file {' or '.join(names)}; found none; pass the GLUE folder or the "
        "folder of the task"
    )


def _column_places(glue: GlueTask, path: Path, columns: list[str], labelled: bool) -> dict[str, int]:
    names = {"text": glue.text_column}
    if glue.pair_column:
        names["pair"] = glue.pair_column
    if labelled:
        names["label"] = glue.label_column
    missing = [column for column in names.values() if column not in columns]
    if missing:
        raise UserError(
            f"{path}: line 1: the header must have the columns {', '.join(names.values())} of {glue.task.name}; "
            f"received {', '.join(columns)[:200]}; add {', '.join(missing)}"
        )
    return {part: columns.index(column) for part, column in names.items()}


def _label(glue: GlueTask, text: str) -> float:
    if glue.has_scores:
        return parse_score(text)
    label = glue.label_texts.get(text) if glue.label_texts else text
    if label not in glue.task.labels:
        accepted = glue.label_texts or glue.task.labels
        raise ValueError(f"the label must be one of {', '.join(accepted)}; received {shown(text)}")
    return glue.task.labels.index(label)
