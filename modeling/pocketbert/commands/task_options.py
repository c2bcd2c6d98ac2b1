"""The options with which commands that train are told a task and its examples."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pocketbert.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.examples import Examples
    from pocketbert.data.questions import QuestionFile

_GLUE = ("task", "data")
_OWN = ("train_file", "dev_file")
_XNLI = "xnli"


class TaskExamples(NamedTuple):
    """A task as the flags name it.

    Attributes:
      task: classification, multi_label, regression or spans.
      train: labelled examples to train on, of spans a file of questions.
      dev: the same, to choose the best checkpoint by.
      metrics: the task's metrics.
      main_metric: the one of them that chooses.
    """

    task: TaskConfig
    train: Examples | QuestionFile
    dev: Examples | QuestionFile
    metrics: tuple[str, ...]
    main_metric: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a .csv, .tsv or .jsonl file is read.

    Attributes:
      text_column: column of the sentence, or of the first sentence of a pair.
      pair_column: column of the second sentence.
      label_column: column of the label, labels or score.
      label_separator: separator of labels in a cell (multi_label).
      separator: column separator of a .csv file: one character, or tab.
      skip_bad_rows: skip and count rows with a missing text or label or a wrong number of columns, and questions with a
        wrong answer.
    """

    GROUP: ClassVar = "Data"
    COMMON: ClassVar = ("text_column", "pair_column", "label_column")

    text_column: str = "text"
    pair_column: str | None = None
    label_column: str = "label"
    label_separator: str = "|"
    separator: str = ","
    skip_bad_rows: bool = False

    @property
    def rows(self) -> dict[str, Any]:
        """The arguments of `read_table` that have nothing to do with labels."""
        return {name: getattr(self, name) for name in ("text_column", "pair_column", "separator", "skip_bad_rows")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """A task and its examples.

    Attributes:
      task: a GLUE task (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli), or xnli, squad, squad2 or tydiqa.
      data: folder with the GLUE download, or with the files of the task.
      train_file: instead of --task: your .csv, .tsv or .jsonl table, or a .json or .jsonl file of questions; with xnli:
        the MultiNLI file, if it is not in --data.
      dev_file: dev split in the same format, to select the checkpoint (default: a tenth of --train-file).
      kind: kind of labels in --train-file.
      labels: labels in the order of the logits (default: those in the file, in alphabetical order).
      languages: languages of the XNLI dev set, such as en,de (default: all).
    """

    GROUP: ClassVar = "Data"
    COMMON: ClassVar = ("task", "data", "train_file", "dev_file", "kind")

    task: str | None = None
    data: str | None = None
    train_file: str | None = None
    dev_file: str | None = None
    kind: Literal["classification", "multi_label", "regression"] = "classification"
    labels: tuple[str, ...] | None = None
    languages: tuple[str, ...] | None = None

    @property
    def given(self) -> set[str]:
        """Which of `task`, `data`, `train_file` and `dev_file` have a value."""
        return {name for name in (*_GLUE, *_OWN) if getattr(self, name)}


def problems(options: TaskOptions) -> list[str]:
    """What is wrong with the choice of data, for a command that needs some."""
    named = options.given
    if options.task == _XNLI:
        named -= {"train_file"}
    elif options.languages:
        return [f"--languages belongs to --task={_XNLI}; received it with {options.task or 'no task'}"]
    if named in ({*_GLUE}, {*_OWN}, {"train_file"}):
        return []
    return [
        "the data are either --task and --data or --train-file, with or without --dev-file; received "
        + (" and ".join(f"--{name.replace('_', '-')}" for name in sorted(named)) or "none of them")
    ]


def read(options: TaskOptions, table: TableOptions) -> TaskExamples:
    """Reads what the options name.

    Raises:
      UserError: unreadable files.
    """
    from pocketbert.configs import TaskConfig
    from pocketbert.data.glue import GLUE, read_glue
    from pocketbert.data.question_tasks import QUESTION_TASKS, is_question_file
    from pocketbert.data.xnli import XNLI, read_xnli, read_xnli_training

    # `problems` has looked whether what is read here was given.
    data, train_file = options.data or "", options.train_file or ""
    if options.task == _XNLI:
        train = read_xnli_training(data, options.train_file)
        dev = read_xnli(data, "dev", options.languages)
        return TaskExamples(XNLI, train, dev, *_metrics(XNLI))
    files = [getattr(options, name) for name in _OWN]
    if options.task in QUESTION_TASKS or any(map(is_question_file, files)):
        return _read_questions(options, table)
    if options.task:
        if options.task not in GLUE:
            known = [*GLUE, _XNLI, *(name for name, each in QUESTION_TASKS.items() if "train" in each.files)]
            hint = did_you_mean(options.task, known)
            raise UserError(f"no task {options.task!r} to train on{hint}; the tasks are {', '.join(known)}")
        glue = GLUE[options.task]
        train, dev = (read_glue(options.task, data, split) for split in ("train", "dev"))
        return TaskExamples(glue.task, train, dev, *_metrics(glue.task))
    given, labels = _read_table(options, table, train_file, options.labels)
    dev_file = options.dev_file
    train, dev = _with_held_out(
        options, given, _read_table(options, table, dev_file, labels or None)[0] if dev_file else None
    )
    task = TaskConfig(kind=options.kind, labels=labels)
    return TaskExamples(task, train, dev, *_metrics(task))


def _metrics(config: TaskConfig) -> tuple[tuple[str, ...], str]:
    from pocketbert.tasks.registry import supervised_task

    task = supervised_task(config)
    return task.metrics, task.main_metric


def _read_questions(options: TaskOptions, table: TableOptions) -> TaskExamples:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.question_tasks import read_questions
    from pocketbert.data.questions import QuestionFile

    # BERT's head for spans has no dropout (run_squad.py).
    span = TaskConfig(kind="span", name=options.task or "", dropout=0.0)
    given: list[QuestionFile | None]
    if options.task:
        own, dev = (read_questions(options.task, options.data or "", split) for split in ("train", "dev"))
        # Files of TyDi QA may keep the development answers back.
        given = [own, dev if dev.labelled else None]
    else:
        skip_bad = table.skip_bad_rows
        paths = [getattr(options, name) for name in _OWN]
        given = [QuestionFile(path, skip_bad=skip_bad) if path else None for path in paths]
    train, dev = _with_held_out(options, *given)
    return TaskExamples(span, train, dev, *_metrics(span))


def read_augmented(options: TaskOptions, table: TableOptions, path: str, task: TaskExamples) -> Examples:
    """Reads what `pocketbert augment` made of the task: in the file's own columns, or text, pair, label for GLUE's.

    Rows that are made from examples of the dev split are left out.

    Raises:
      UserError: an unreadable file, or questions, which nothing augments.
    """
    from pocketbert.data.tables import read_table
    from pocketbert.tasks.registry import get_task
    from pocketbert.tasks.texts import TextTask

    made = get_task(task.task)
    if not isinstance(made, TextTask):
        raise UserError(f"questions on paragraphs cannot be augmented; received {path}; leave it out")

    if not options.task:
        augmented, _ = _read_table(options, table, path, task.task.labels or None)
        return augmented if options.dev_file else _without(table, augmented, task.dev)
    examples, _ = read_table(
        path,
        text_column="text",
        pair_column="pair" if task.train.has_pairs else None,
        label_column="label",
        labels=task.task.labels or None,
        kind=made.label_form,
    )
    return examples


def _without(table: TableOptions, augmented: Examples, aside: Any) -> Examples:
    """The rows that are not made from examples of the dev split."""
    from pocketbert.data.tables import read_table
    from pocketbert.progress import log_info

    path = augmented.source
    try:
        of_rows, _ = read_table(path, text_column="example", skip_bad_rows=table.skip_bad_rows)
    except UserError as error:
        raise UserError(
            f"{path}: without --dev-file, the column 'example' of pocketbert augment must give the origin of each row; "
            "some rows have none; give --dev-file"
        ) from error
    # By their texts too: the numbers may be those of another file than --train-file.
    texts = set(aside.texts)
    name_of = dict(zip(of_rows.ids, of_rows.texts, strict=True))
    origins = [name_of.get(row) for row in augmented.ids]
    dropped = {None, *aside.ids, *(name for name, text in zip(origins, augmented.texts, strict=True) if text in texts)}
    kept = [index for index, name in enumerate(origins) if name not in dropped]
    log_info(f"{path}: left out {len(augmented) - len(kept)} rows, which are made from examples in the dev split")
    return augmented.select(kept)


def _with_held_out(options: TaskOptions, train: Any, dev: Any) -> tuple[Any, Any]:
    """The two, where there is no second one a part of the first."""
    from pocketbert.data.train_dev_split import train_dev_split
    from pocketbert.progress import log_info

    if dev is not None:
        return train, dev
    train, dev = train_dev_split(train, stratify=True)
    remedy = "--data's development file has no answers" if options.task else "--dev-file gives others"
    log_info(f"{len(dev)} of {len(dev) + len(train)} examples are the dev split; {remedy}")
    return train, dev


def _read_table(
    options: TaskOptions, table: TableOptions, path: str, labels: list[str] | tuple[str, ...] | None
) -> tuple[Examples, tuple[str, ...]]:
    from pocketbert.data.tables import read_table

    return read_table(
        path,
        **table.rows,
        label_column=table.label_column,
        labels=labels,
        # Labels that were found are in alphabetical order, which no other file need count in.
        numbered=bool(options.labels),
        kind=options.kind,
        label_separator=table.label_separator,
    )
