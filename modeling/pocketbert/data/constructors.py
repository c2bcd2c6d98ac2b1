"""Training data in one call: the functions of `pocketbert.data`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pocketbert.configs import TaskConfig
from pocketbert.data import table_objects
from pocketbert.data.examples import Examples
from pocketbert.data.glue import glue_task, read_glue
from pocketbert.data.question_tasks import read_questions
from pocketbert.data.questions import QuestionFile
from pocketbert.data.tables import LABEL_SEPARATOR, read_table
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.text import text_files
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.data.xnli import XNLI, read_xnli, read_xnli_training
from pocketbert.errors import UserError
from pocketbert.progress import log_info

if TYPE_CHECKING:
    pass

_Path = str | os.PathLike[str]


def table(
    source: Any,
    *,
    text: str = "text",
    label: str = "label",
    pair: str | None = None,
    dev: Any = None,
    augmented: _Path | None = None,
    kind: Literal["classification", "multi_label", "regression"] = "classification",
    label_names: Sequence[str] | None = None,
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> TaskData:
    """Labelled sentences, or pairs of them, from a table.

    A table is a `.csv`, `.tsv` or `.jsonl` file, a pandas DataFrame, a dict of columns, a list of dicts or of
    (text, label) pairs, a data set of Hugging Face's `datasets`, or a `tf.data.Dataset` of dicts or of
    (text, label) pairs. All of them give the same examples.

    Example:
      ```python
      data = pb.data.table("reviews.tsv", text="review", label="mood")
      data = pb.data.table({"text": ["good", "bad"] * 8, "label": ["positive", "negative"] * 8})
      ```

    Args:
      source: the table to train on, or a dict of tables with `train` and, if there is one, `validation` or `dev`.
      text: the column of the sentence, or of the first sentence of a pair.
      label: the column of the label, of the labels or of the score.
      pair: the column of the second sentence, or None.
      dev: a table of the same columns, to choose the best checkpoint by. None splits a tenth off the training
        examples, about the same part of each class; rows with the same text stay together.
      augmented: the file that `pocketbert augment` made of the training file, for distillation.
      kind: what the labels are: classes, any number of labels for each text, or scores.
      label_names: the labels in the order of the logits. None takes those that a data set of `datasets` names, else
        those that occur: in numeric order if all are whole numbers, else in alphabetical order.
      label_separator: what separates the labels of a text in a cell (`multi_label`).
      separator: what separates the columns of a `.csv` file: one character, or `tab`.
      skip_bad_rows: leave out rows without a text or a label, and say on stderr how many.
    Returns:
      The task with its training and development examples.
    Raises:
      UserError: a missing file or column, an empty text, an unknown label, and so on: all bad rows together.
    """
    splits = table_objects.splits_of(source)
    if splits is not None:
        source = splits["train"]
        dev = splits.get("validation", splits.get("dev")) if dev is None else dev
    known = label_names or table_objects.class_names(source, label)
    read = functools.partial(
        read_table,
        text_column=text,
        pair_column=pair,
        label_column=label,
        # Labels that were found are in alphabetical order, which no other table need count in.
        numbered=known is not None,
        kind=kind,
        label_separator=label_separator,
        separator=separator,
        skip_bad_rows=skip_bad_rows,
    )
    train, labels = read(source, labels=known)
    task = TaskConfig(kind=kind, labels=labels)
    train, split_off = _with_dev(train, None if dev is None else read(dev, labels=labels or None)[0])
    more = None
    if augmented is not None:
        more, _ = read(augmented, labels=labels or None)
        more = more if dev is not None else _without_examples(more, split_off, skip_bad_rows=skip_bad_rows)
    return TaskData(task=task, train=train, dev=split_off, augmented=more)


def from_pairs(
    texts: Iterable[str],
    labels: Iterable[Any],
    *,
    pairs: Iterable[str] | None = None,
    dev: tuple[Any, ...] | None = None,
    kind: Literal["classification", "multi_label", "regression"] = "classification",
    label_names: Sequence[str] | None = None,
) -> TaskData:
    """Labelled sentences, or pairs of them, from parallel lists.

    Example:
      ```python
      data = pb.data.from_pairs(["good", "bad"] * 8, ["positive", "negative"] * 8)
      ```

    Args:
      texts: the sentences, or the first sentences of pairs.
      labels: a label, a list of labels or a score for each text.
      pairs: the second sentences.
      dev: (texts, labels), or (texts, labels, pairs), to choose the best checkpoint by; None splits a tenth off.
      kind: as for `table`.
      label_names: as for `table`.
    Returns:
      The task with its training and development examples.
    Raises:
      UserError: lists of different lengths, and as for `table`.
    """
    names = ("text", "label", "pair")

    def columns(parts: Sequence[Any]) -> dict[str, list[Any]]:
        return {name: [*part] for name, part in zip(names, parts, strict=False) if part is not None}

    return table(
        columns((texts, labels, pairs)),
        pair=None if pairs is None else "pair",
        dev=None if dev is None else columns(dev),
        kind=kind,
        label_names=label_names,
    )


def glue(name: str, folder: _Path, *, augmented: _Path | None = None) -> TaskData:
    """A task of GLUE from its official files.

    Example:
      ```python
      data = pb.data.glue("sst2", "glue")
      ```

    Args:
      name: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte or wnli.
      folder: the task's own folder, or the one that holds it under its official name (`SST-2`).
      augmented: the file that `pocketbert augment` made of the training examples, for distillation.
    Returns:
      The task with its training and (for MNLI: matched) development examples, and GLUE's metrics.
    Raises:
      UserError: no such task, a missing file, rows that cannot be read.
    """
    task = glue_task(name)
    train, dev = (read_glue(name, folder, split) for split in ("train", "dev"))
    more = _augmented(augmented, task.task, train)
    return TaskData(
        task=task.task, train=train, dev=dev, metrics=task.metrics, main_metric=task.main_metric, augmented=more
    )


def xnli(
    folder: _Path,
    *,
    train: _Path | None = None,
    languages: Sequence[str] | None = None,
    augmented: _Path | None = None,
) -> TaskData:
    """XNLI: trained on MultiNLI's English examples, developed in up to 15 languages.

    Args:
      folder: the folder with XNLI's files and, unless `train` names it, MultiNLI's.
      train: the file of MultiNLI's English training examples.
      languages: which development examples to take, for example `("en", "de")`; None takes all that are there.
      augmented: as for `glue`.
    Returns:
      The task with its examples; the development examples' `groups` are their languages.
    Raises:
      UserError: a missing file or language, rows that cannot be read.
    """
    given, dev = read_xnli_training(folder, train), read_xnli(folder, "dev", languages)
    return TaskData(task=XNLI, train=given, dev=dev, augmented=_augmented(augmented, XNLI, given))


def questions(
    source: _Path, folder: _Path | None = None, *, dev: _Path | None = None, skip_bad_rows: bool = False
) -> TaskData:
    """Questions on paragraphs, answered by a part of the paragraph.

    Example:
      ```python
      data = pb.data.questions("train.json", dev="dev.json")
      data = pb.data.questions("squad2", "squad")
      ```

    Args:
      source: a `.json` or `.jsonl` file in SQuAD's format or, with `folder`, squad, squad2 or tydiqa.
      folder: the folder with the files of the data set that `source` names.
      dev: a file of questions to choose the best checkpoint by; None splits a tenth of the paragraphs off.
      skip_bad_rows: leave out questions that cannot be read, and say on stderr how many.
    Returns:
      The task with its training and development questions.
    Raises:
      UserError: no such data set or file, questions that cannot be read.
    """
    given: QuestionFile | None
    if folder is not None:
        train, given = (read_questions(str(source), folder, split) for split in ("train", "dev"))
        # Files of TyDi QA may keep the development answers back.
        given = given if given.labelled else None
    else:
        train = QuestionFile(source, skip_bad=skip_bad_rows)
        given = None if dev is None else QuestionFile(dev, skip_bad=skip_bad_rows)
    # BERT's head for spans has no dropout (run_squad.py).
    task = TaskConfig(kind="span", name="" if folder is None else str(source), dropout=0.0)
    remedy = "--dev-file gives others" if folder is None else "--data's development file has no answers"
    train, given = _with_dev(train, given, remedy)
    return TaskData(task=task, train=train, dev=given)


def text(path: _Path) -> TextData:
    """Plain text, for distillation without a task.

    Args:
      path: a file or a folder: WikiExtractor's output, plain text or JSONL, compressed or not.
    Returns:
      The text; it is read while training.
    Raises:
      UserError: no such file or folder.
    """
    text_files(Path(path))
    return TextData(path)


def _augmented(path: _Path | None, task: TaskConfig, train: Examples) -> Examples | None:
    """What `pocketbert augment` made of a data set's training examples: the columns text, pair and label."""
    if path is None:
        return None
    kind: Any = task.kind
    pair = None if train.pairs is None else "pair"
    labels = task.labels or None
    return read_table(path, text_column="text", pair_column=pair, label_column="label", labels=labels, kind=kind)[0]


def _without_examples(augmented: Examples, dropped: Examples, *, skip_bad_rows: bool) -> Examples:
    """The rows of an augmented file that are not made from certain examples.

    Raises:
      UserError: the file does not say what its rows are made from.
    """
    path = augmented.source
    try:
        of_rows, _ = read_table(path, text_column="example", skip_bad_rows=skip_bad_rows)
    except UserError as error:
        raise UserError(
            f"{path}: without --dev-file, the column 'example' of pocketbert augment must give the origin of each row; "
            "some rows have none; give --dev-file"
        ) from error
    # By their texts too: the numbers may be those of another file than the training file.
    texts = set(dropped.texts)
    name_of = dict(zip(of_rows.ids, of_rows.texts, strict=True))
    origins = [name_of.get(row) for row in augmented.ids]
    named = {None, *dropped.ids, *(name for name, text in zip(origins, augmented.texts, strict=True) if text in texts)}
    kept = [index for index, name in enumerate(origins) if name not in named]
    log_info(f"{path}: left out {len(augmented) - len(kept)} rows, which are made from examples in the dev split")
    return augmented.select(kept)


def _with_dev(train: Any, dev: Any, remedy: str = "--dev-file gives others") -> tuple[Any, Any]:
    """The two; without the second a part of the first."""
    if dev is not None:
        return train, dev
    train, dev = train_dev_split(train, stratify=True)
    log_info(f"{len(dev)} of {len(dev) + len(train)} examples are the dev split; {remedy}")
    return train, dev
