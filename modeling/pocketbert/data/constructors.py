"""Functions in `pocketbert.data`: training data in one call."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pocketbert.configs import TASK_RULES, TaskConfig, TaskKind
from pocketbert.data.augmented import read_augmented, without_examples
from pocketbert.data.examples import Examples
from pocketbert.data.readers import table_objects
from pocketbert.data.readers.glue import glue_task, read_glue
from pocketbert.data.readers.iob import tags_of_types
from pocketbert.data.readers.question_tasks import read_questions
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.readers.soft_labels import SoftReader, check_kind, check_soft_labels, soft_label_names
from pocketbert.data.readers.soft_tags import SoftTagReader
from pocketbert.data.readers.tables import LABEL_SEPARATOR, read_table
from pocketbert.data.readers.tagged_texts import read_tagged
from pocketbert.data.readers.text import text_files
from pocketbert.data.readers.text_pairs import RECALL_METRICS, positive_pairs, scaled_scores, with_negatives
from pocketbert.data.readers.xnli import XNLI, read_xnli, read_xnli_training
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_runtime.embedding_config import EmbeddingConfig

_Path = str | os.PathLike[str]


def table(
    source: Any,
    *,
    text: str = "text",
    label: str | Sequence[str] = "label",
    pair: str | None = None,
    dev: Any = None,
    test: Any = None,
    augmented: _Path | None = None,
    kind: TaskKind = "classification",
    label_names: Sequence[str] | None = None,
    soft_labels: Sequence[str] = (),
    label_separator: str = LABEL_SEPARATOR,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> TaskData:
    """Reads labelled sentences or sentence pairs from a table.

    Pass a `.csv`, `.tsv` or `.jsonl` file, a pandas DataFrame, a dict of columns, a Hugging Face data set, or dicts or
    (text, label) pairs in a list or a `tf.data.Dataset`. All forms give the same examples.

    Example:
      ```python
      data = pb.data.table("reviews.tsv", text="review", label="mood")
      data = pb.data.table({"text": ["good", "bad"] * 8, "label": ["positive", "negative"] * 8})
      ```

    Args:
      source: training table, or a dict with the tables `train` and optionally `validation` or `dev`.
      text: column with the sentence, or the first sentence in a pair.
      label: column with the label, labels or score; for `multi_label`, also a list with a 0/1 column for each label.
      pair: column with the second sentence, or None.
      dev: table with the same columns, to select the best checkpoint. None draws a tenth from the training examples,
        stratified by class; rows with the same text stay together.
      test: table with the same columns for the final score in `pb.compress`. Training and selection never read it.
      augmented: `pocketbert augment` output for the training file, for distillation.
      kind: `classification` (one class per text), `multi_label` (any number of labels) or `regression` (a score).
      label_names: labels in logit order. None takes the names from a Hugging Face data set, else the labels in the
        table: in numeric order if all are whole numbers, else in alphabetical order.
      soft_labels: for distillation, columns with a teacher's label probabilities in `label_names` order, or
        `probabilities`, with objects from label to probability. Without a column `label`, the most likely one counts.
      label_separator: separator between labels in a cell (`multi_label`).
      separator: column separator in a `.csv` file: one character, or `tab`.
      skip_bad_rows: skip rows without a text or label, and log their number.
    Raises:
      UserError: a missing file or column, an empty text, an unknown label, and so on. One error lists all bad rows.
    """
    splits = table_objects.splits_of(source)
    if splits is not None:
        source = splits["train"]
        dev = splits.get("validation", splits.get("dev")) if dev is None else dev
    if isinstance(label, str) or len(label) == 1:
        label = label if isinstance(label, str) else label[0]
        names = label_names or table_objects.class_names(source, label)
    else:
        names = label_names
        if kind == "classification":
            kind = "multi_label"
            log_info(f"{len(label)} label columns: each is a label of the kind multi_label")
    kinds = [name for name, rules in TASK_RULES.items() if rules.reads == "table"]
    if kind not in kinds:
        raise UserError(f"kind must be {', '.join(kinds)} for a table; received {kind!r}")
    read: Any = functools.partial(
        read_table,
        text_column=text,
        pair_column=pair,
        label_column=label,
        # Labels found in the table are in alphabetical order; indices may count in another one.
        numbered=names is not None,
        kind=TASK_RULES[kind].label_form,
        label_separator=label_separator,
        separator=separator,
        skip_bad_rows=skip_bad_rows,
    )
    if soft_labels:
        check_kind(kind, soft_labels, [name for name in kinds if TASK_RULES[name].min_labels])
        several = () if isinstance(label, str) else tuple(label)
        names = names or several or soft_label_names(source, soft_labels, separator)
        read = SoftReader(read, soft_labels, independent=TASK_RULES[kind].label_form == "multi_label")
    train, labels = read(source, labels=names)
    if soft_labels:
        check_soft_labels(train, soft_labels)
    task = TaskConfig(kind=kind, labels=labels)
    splits = divided(train, None if dev is None else read(dev, labels=labels or None)[0])
    more = None
    if augmented is not None:
        more, _ = read(augmented, labels=labels or None)
        more = more if dev is not None else without_examples(more, splits["dev"], skip_bad_rows=skip_bad_rows)
    of_test = None if test is None else read(test, labels=labels or None)[0]
    return TaskData(task=task, **splits, augmented=more, test=of_test)


def from_pairs(
    texts: Iterable[str],
    labels: Iterable[Any],
    *,
    pairs: Iterable[str] | None = None,
    dev: tuple[Any, ...] | None = None,
    kind: TaskKind = "classification",
    label_names: Sequence[str] | None = None,
) -> TaskData:
    """Makes training data from parallel lists.

    Example:
      ```python
      data = pb.data.from_pairs(["good", "bad"] * 8, ["positive", "negative"] * 8)
      ```

    Args:
      texts: sentences, or the first sentence in each pair.
      labels: a label, label list or score for each text.
      pairs: second sentences.
      dev: (texts, labels) or (texts, labels, pairs), to select the best checkpoint; None draws a tenth from the texts.
      kind: see `table`.
      label_names: see `table`.
    Raises:
      UserError: lists with different lengths; see also `table`.
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
    """Reads a GLUE task with GLUE's metrics from its official files. MNLI's dev split is the matched one.

    Example:
      ```python
      data = pb.data.glue("sst2", "glue")
      ```

    Args:
      name: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte or wnli.
      folder: the task's folder, or the GLUE download with a folder for each task (`SST-2`).
      augmented: `pocketbert augment` output for the training examples, for distillation.
    Raises:
      UserError: an unknown task, a missing file, or unreadable rows.
    """
    task = glue_task(name)
    train, dev = (read_glue(name, folder, split) for split in ("train", "dev"))
    more = read_augmented(augmented, task.task, train)
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
    """Reads XNLI: English training examples from MultiNLI, and a dev split in up to 15 languages (its `groups`).

    Args:
      folder: folder with XNLI's files and, without `train`, MultiNLI's.
      train: file with MultiNLI's English training examples.
      languages: dev split languages, for example `("en", "de")`; None for all in the folder.
      augmented: see `glue`.
    Raises:
      UserError: a missing file or language, or unreadable rows.
    """
    given_train, dev = read_xnli_training(folder, train), read_xnli(folder, "dev", languages)
    return TaskData(task=XNLI, train=given_train, dev=dev, augmented=read_augmented(augmented, XNLI, given_train))


def questions(
    source: _Path,
    folder: _Path | None = None,
    *,
    dev: _Path | None = None,
    test: _Path | None = None,
    skip_bad_rows: bool = False,
) -> TaskData:
    """Reads questions on paragraphs; answers are spans in the paragraphs.

    Example:
      ```python
      data = pb.data.questions("train.json", dev="dev.json")
      data = pb.data.questions("squad2", "squad")
      ```

    Args:
      source: a `.json` or `.jsonl` file in SQuAD's format; with `folder`: squad, squad2 or tydiqa.
      folder: folder with the data set's files.
      dev: question file to select the best checkpoint; None draws a tenth from the paragraphs.
      test: question file for the final score in `pb.compress`. Training and selection never read it.
      skip_bad_rows: skip unreadable questions, and log their number.
    Raises:
      UserError: an unknown data set, a missing file, or unreadable questions.
    """
    given: QuestionFile | None
    if folder is not None:
        train, given = (read_questions(str(source), folder, split) for split in ("train", "dev"))
        # TyDi QA's dev file may have no answers.
        given = given if given.labelled else None
    else:
        train = QuestionFile(source, skip_bad=skip_bad_rows)
        given = None if dev is None else QuestionFile(dev, skip_bad=skip_bad_rows)
    # BERT's span head has no dropout (run_squad.py).
    task = TaskConfig(kind="span", name="" if folder is None else str(source), dropout=0.0)
    reason = "" if folder is None else f"the dev file in {argument('folder')} has no answers"
    of_test = None if test is None else QuestionFile(test, skip_bad=skip_bad_rows)
    return TaskData(task=task, **divided(train, given, reason), test=of_test)


def tagged(
    source: _Path,
    *,
    dev: _Path | None = None,
    test: _Path | None = None,
    text: str = "text",
    label: str | None = None,
    label_names: Sequence[str] | None = None,
    kind: TaskKind = "token_classification",
    soft_labels: Sequence[str] = (),
    skip_bad_rows: bool = False,
) -> TaskData:
    """Reads texts with labelled spans, such as names: a CoNLL file, or a .jsonl file with offsets in code points.

    A CoNLL file may have IOB1, IOB2 or BIOES tags. The model learns IOB2.

    Example:
      ```python
      data = pb.data.tagged("train.conll", dev="dev.conll")
      ```

    Args:
      source: file with training sentences; for its format see `pocketbert.data.readers.tagged_texts`.
      dev: file to select the best checkpoint; None draws a tenth from the sentences.
      test: file for the final score in `pb.compress`. Training and selection never read it.
      text: member with the text in a .jsonl file.
      label: member with the spans in a .jsonl file (None: `spans`), or tag column number in a CoNLL file (None: last).
      label_names: span types; None takes those in the training file, in alphabetical order.
      kind: task kind.
      soft_labels: `("probabilities",)` for a teacher's probabilities; see `pocketbert.data.readers.soft_tags`.
      skip_bad_rows: skip unreadable sentences, and log their number.
    Raises:
      UserError: a missing file, unreadable sentences, tags that no scheme allows, or other types in another file.
    """
    columns: dict[str, Any] = {"text": text, "label": label, "skip_bad_rows": skip_bad_rows}
    soft_reader = SoftTagReader(source, soft_labels, label_names) if soft_labels else None
    read: Any = soft_reader or read_tagged
    train = read(source, types=label_names, **columns)
    types = soft_reader.types if soft_reader else label_names or train.types
    if soft_labels:
        check_soft_labels(train, soft_labels)
    if not types:
        raise UserError(f"{source}: the training sentences must have spans; received none")
    task = TaskConfig(kind=kind, labels=tags_of_types(types))
    of_dev, of_test = (None if path is None else read(path, types=types, **columns) for path in (dev, test))
    return TaskData(task=task, **divided(train, of_dev), test=of_test)


def pairs(
    source: _Path,
    folder: _Path | None = None,
    *,
    text: str = "text",
    pair: str = "pair",
    score: str | None = None,
    negative: str | None = None,
    dev: _Path | None = None,
    test: _Path | None = None,
    max_score: float = 1.0,
    embedding: EmbeddingConfig | None = None,
    separator: str = ",",
    skip_bad_rows: bool = False,
) -> TaskData:
    """Reads text pairs for sentence embeddings: pairs with similarity scores, or positive pairs.

    Example:
      ```python
      data = pb.data.pairs("stsb", "glue")
      data = pb.data.pairs("questions.tsv", text="question", pair="answer")
      ```

    Args:
      source: a `.csv`, `.tsv` or `.jsonl` file; or stsb, GLUE's STS-B, with its `folder`.
      folder: folder with GLUE's files.
      text: column with the first text.
      pair: column with the second text.
      score: score column. None makes all pairs positive; they train with in-batch negatives.
      negative: column with a hard negative per positive pair: a text near the first one that does not belong to it.
      dev: file with the same columns, to select the best checkpoint; None draws a tenth from the pairs.
      test: file with the same columns for the final score in `pb.compress`. Training and selection never read it.
      max_score: score for equal texts; scores are divided by it.
      embedding: pooling and dense layer. None keeps an embedding model's own; other models average and normalize.
      separator: column separator in a `.csv` file: one character, or `tab`.
      skip_bad_rows: skip unreadable rows, and log their number.
    Raises:
      UserError: a missing file or column, an empty text, or a score not between -`max_score` and `max_score`.
    """
    task = TaskConfig(kind="embedding", name="" if folder is None else str(source), embedding=embedding)
    if folder is not None:
        if source != "stsb":
            raise UserError(f"pairs with scores are in the GLUE task stsb; received {source}; give your own as a file")
        train, given = (scaled_scores(read_glue("stsb", folder, split), 5.0) for split in ("train", "dev"))
        return TaskData(task=task, train=train, dev=given)

    def read(path: _Path) -> Examples:
        columns: dict[str, Any] = {"text_column": text, "pair_column": pair, "label_column": score}
        options: dict[str, Any] = {"separator": separator, "skip_bad_rows": skip_bad_rows}
        rows = positive_pairs(read_table(path, kind="regression", **columns, **options)[0])
        return scaled_scores(with_negatives(rows, negative, separator, skip_bad_rows=skip_bad_rows), max_score)

    splits = divided(read(source), None if dev is None else read(dev))
    metrics: tuple[str, ...] = () if score else RECALL_METRICS
    of_test = None if test is None else read(test)
    return TaskData(task=task, **splits, metrics=metrics, main_metric="".join(metrics[:1]), test=of_test)


def text(path: _Path, dev: _Path | None = None) -> TextData:
    """Selects plain text, which training reads, for distillation without a task or for masked LM.

    Args:
      path: file or folder with WikiExtractor output, plain text or JSONL, compressed or not.
      dev: for masked LM: other text, for the dev part; None splits it off `path`.
    Raises:
      UserError: no such file or folder.
    """
    for given in (path,) if dev is None else (path, dev):
        text_files(Path(given))
    return TextData(path, dev)


def divided(train: Any, dev: Any, reason: str = "") -> dict[str, Any]:
    """Returns the splits as `TaskData` fields. Draws a missing `dev` from `train`, and logs `reason` or a remedy."""
    if dev is not None:
        return {"train": train, "dev": dev}
    undivided = train
    train, dev = train_dev_split(undivided, stratify=True)
    remedy = f"pass {argument('dev')} to choose them"
    log_info(f"{len(dev)} of {len(undivided)} examples are the dev split; {reason or remedy}")
    return {"train": train, "dev": dev, "undivided": undivided}
