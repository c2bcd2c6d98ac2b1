"""Task and data options shared by training commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.configs import TASK_RULES, FileKind
from pocketbert.errors import UserError, did_you_mean
from pocketbert.heads_config import files_by_head
from pocketbert.options import DirectoryPath, FilePath

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData

_GLUE = ("task", "data")
_OWN = ("train_file", "dev_file")
_XNLI = "xnli"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for reading a .csv, .tsv or .jsonl file.

    Attributes:
      text_column: column with the text, or with the first text in a pair.
      pair_column: column with the second text in a pair.
      label_column: column with the label, labels or score. Several columns, as in toxic,obscene,threat, are a label
        each, with 0 or 1 (multi_label). For spans, the .jsonl member (default: spans) or the .conll column number
        (default: the last). For several heads, HEAD=COLUMN for each head (default: its name).
      label_separator: separator between labels in a cell (multi_label).
      separator: column separator in a .csv file: one character, or tab.
      skip_bad_rows: skip and count unreadable rows and questions instead of stopping.
    """

    GROUP: ClassVar = "Data"
    COMMON: ClassVar = ("text_column", "pair_column", "label_column")

    text_column: str = "text"
    pair_column: str | None = None
    label_column: tuple[str, ...] = ("label",)
    label_separator: str = "|"
    separator: str = ","
    skip_bad_rows: bool = False

    @property
    def rows(self) -> dict[str, Any]:
        """Arguments for `read_table`, except those for labels."""
        return {name: getattr(self, name) for name in ("text_column", "pair_column", "separator", "skip_bad_rows")}

    @property
    def one_label(self) -> str | None:
        """The only label column; None without a name.

        Raises:
          UserError: there are several.
        """
        if len(self.label_column) > 1:
            raise UserError(
                "several label columns are for --kind=multi_label; received --label-column="
                f"{','.join(self.label_column)}; name one column"
            )
        return self.label_column[0] if self.label_column else None

    @property
    def of_heads(self) -> dict[str, Any]:
        """Column arguments for `pocketbert.data.heads`.

        Raises:
          UserError: a label column belongs to no head.
        """
        columns = () if self.label_column == TableOptions.label_column else self.label_column
        names = ("label_separator", "separator", "skip_bad_rows")
        if self.pair_column:
            raise UserError(f"several heads read single texts; received --pair-column={self.pair_column}; leave it out")
        return {
            "text": self.text_column,
            "labels": _by_head("label-column", "COLUMN", columns),
            **{name: getattr(self, name) for name in names},
        }

    @property
    def tagged(self) -> dict[str, Any]:
        """Arguments for `pocketbert.data.tagged`, for text and labels."""
        label = None if self.label_column == TableOptions.label_column else self.one_label
        return {"text": self.text_column, "label": label, "skip_bad_rows": self.skip_bad_rows}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """A task and its examples.

    Attributes:
      task: a GLUE task (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli), or xnli, squad, squad2 or tydiqa.
      data: folder with the GLUE download, or with the task's files.
      train_file: instead of --task: your .csv, .tsv or .jsonl table, a .json or .jsonl file with questions, or a .conll
        or .jsonl file with spans; for xnli, the MultiNLI file if it is not in --data. For several heads also a file for
        each, as intent=intents.csv,slots=slots.jsonl.
      dev_file: dev split in the same format, to select the checkpoint (default: a tenth of --train-file).
      kind: kind of labels in --train-file: one class, any number of labels, a score, or labelled spans
        (token_classification; implied by a .conll file). embedding trains sentence embeddings on pairs (--pair-column):
        on scores, or without a label column on pairs that belong together; also for --task=stsb.
      heads: several heads on one encoder, as intent:classification,slots:token_classification: each NAME:KIND reads the
        column NAME in --train-file; the kinds are classification, multi_label, regression and token_classification. An
        empty cell has no label for its head.
      head_weights: several heads: loss weights, as slots=2 (default: 1).
      max_score: embedding: the score for equal texts in --train-file, for example 5.
      negative_column: embedding: column with a text for each pair: near the first one, but not its partner.
      pooling: embedding: how to pool the tokens (default: as the embedding model, otherwise mean).
      labels: labels in the order of the logits, or span types (default: those in the file, in alphabetical order; with
        --task the task's labels). A teacher's labels LABEL_0, LABEL_1, … are read in this order.
      metric: metric for selecting the best checkpoint, such as accuracy, f1, macro_f1, matthews, auroc or f1:LABEL for
        classes (default: the task's metric). Ties go to the lower loss on the dev split.
      languages: languages in the XNLI dev set, such as en,de (default: all).
    """

    GROUP: ClassVar = "Data"
    COMMON: ClassVar = ("task", "data", "train_file", "dev_file", "kind")

    task: str | None = None
    data: DirectoryPath | None = None
    train_file: FilePath | None = None
    dev_file: FilePath | None = None
    kind: FileKind = "classification"
    heads: tuple[str, ...] | None = None
    head_weights: tuple[str, ...] | None = None
    max_score: float = 1.0
    negative_column: str | None = None
    pooling: Literal["mean", "cls", "max"] | None = None
    labels: tuple[str, ...] | None = None
    metric: str | None = None
    languages: tuple[str, ...] | None = None

    @property
    def given(self) -> set[str]:
        """Names with a value, among `task`, `data`, `train_file` and `dev_file`."""
        return {name for name in (*_GLUE, *_OWN) if getattr(self, name)}


def _by_head(option: str, what: str, parts: Sequence[str], sign: str = "=") -> dict[str, str]:
    """Parses an option with one value per head; raises a `UserError` for a value without a head or a head with two."""
    values: dict[str, str] = {}
    for part in parts:
        name, separator, value = part.partition(sign)
        if not separator or not name or not value or name in values:
            raise UserError(f"--{option} must be HEAD{sign}{what} for each head once; received {','.join(parts)}")
        values[name] = value
    return values


def _head_problems(options: TaskOptions) -> list[str]:
    """Lists problems with options for several heads."""
    if not options.heads:
        return ["--head-weights is for --heads; received it alone; leave it out"] if options.head_weights else []
    others = [f"--{name}" for name in ("task", "labels", "negative_column", "pooling") if getattr(options, name)]
    others += ["--kind"] if options.kind != TaskOptions.kind else []
    return [
        f"--heads reads a table with a column for each head; received it with {other.replace('_', '-')}; leave one of "
        "them out"
        for other in others
    ]


def problems(options: TaskOptions) -> list[str]:
    """Lists problems with the choice of data."""
    if head_problems := _head_problems(options):
        return head_problems
    named = options.given
    if options.task:
        from pocketbert.data.readers.glue import GLUE
    if options.task and options.task != _XNLI:
        from pocketbert.data.readers.question_tasks import QUESTION_TASKS

        trainable = [
            *GLUE,
            _XNLI,
            *(name for name, question_task in QUESTION_TASKS.items() if "train" in question_task.files),
        ]
        if options.task not in trainable:
            hint = did_you_mean(options.task, trainable)
            return [f"no task {options.task!r} to train on{hint}; the tasks are {', '.join(trainable)}"]
    if options.task and options.kind != TaskOptions.kind and TASK_RULES[options.kind].reads != "pairs":
        if options.task not in GLUE or GLUE[options.task].task.kind != options.kind:
            return [f"--kind is for --train-file; received {options.kind} with --task={options.task}; leave it out"]
    if options.task == _XNLI:
        named -= {"train_file"}
    elif options.languages:
        return [f"--languages needs --task={_XNLI}; received it with {options.task or 'no task'}; leave it out"]
    if named in ({*_GLUE}, {*_OWN}, {"train_file"}):
        return []
    return [
        "data must be --task and --data, or --train-file with or without --dev-file; received "
        + (" and ".join(f"--{name.replace('_', '-')}" for name in sorted(named)) or "none of them")
    ]


def unlabelled_problems(path: str | None, least_confidence: float | None) -> list[str]:
    """Lists problems with the options for unlabelled texts."""
    alone = least_confidence is not None and not path
    return ["--least-confidence is for --unlabelled-file; received it alone"] if alone else []


def with_unlabelled(data: TaskData, path: str | None, least_confidence: float | None, table: TableOptions) -> TaskData:
    """Adds the texts in --unlabelled-file to the data, if there is one; see `pb.data.with_unlabelled`."""
    if not path:
        return data
    from pocketbert.data.unlabelled import with_unlabelled as added

    return added(
        data,
        path,
        text=table.text_column,
        pair=(table.pair_column or "pair") if data.train.has_pairs else None,
        separator=table.separator,
        skip_bad_rows=table.skip_bad_rows,
        least_confidence=least_confidence,
    )


def read_examples(
    options: TaskOptions, table: TableOptions, augmented: str | None = None, soft_labels: tuple[str, ...] = ()
) -> TaskData:
    """Reads the data with the functions of `pocketbert.data`, with the task's metrics unless the data have their own.

    Args:
      options: the task, or files.
      table: options for reading files.
      augmented: output from `pocketbert augment`, with the training file's columns, or text, pair and label for GLUE.
        Rows augmented from dev examples are skipped.
      soft_labels: columns with soft labels; see `pocketbert.data.table`.
    Raises:
      UserError: unreadable files, or augmented questions.
    """
    read = _read(options, table, augmented, soft_labels)
    # Not earlier: bad input must be found before TensorFlow is imported.
    from pocketbert.tasks.registry import supervised_task

    task = supervised_task(read.task)
    main = options.metric or read.main_metric or task.main_metric
    metrics = tuple(read.metrics or task.metrics)
    return dataclasses.replace(read, metrics=metrics if main in metrics else (*metrics, main), main_metric=main)


def _pairs(options: TaskOptions, table: TableOptions) -> TaskData:
    """Reads pairs for embeddings."""
    from pocketbert import data
    from pocketbert.data.readers.tables import table_columns
    from pocketbert_runtime.embedding_config import EmbeddingConfig

    embedding = None if options.pooling is None else EmbeddingConfig(pooling=options.pooling)
    if options.task:
        for name in ("negative_column", "max_score"):
            if getattr(options, name) != getattr(TaskOptions, name):
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} is for --train-file; received it with --task={options.task}; leave it out")
        return data.pairs(options.task, options.data, embedding=embedding)
    path, label = options.train_file or "", table.one_label
    scored = (label,) != TableOptions.label_column or label in table_columns(path, table.separator)
    return data.pairs(
        path,
        text=table.text_column,
        pair=table.pair_column or "pair",
        score=label if scored else None,
        negative=options.negative_column,
        dev=options.dev_file,
        max_score=options.max_score,
        embedding=embedding,
        separator=table.separator,
        skip_bad_rows=table.skip_bad_rows,
    )


def _read_heads(
    options: TaskOptions, table: TableOptions, augmented: str | None, soft_labels: tuple[str, ...]
) -> TaskData:
    """Reads a table with one column per head."""
    from pocketbert import data

    if augmented:
        raise UserError(f"--augmented-file is for one head; received {augmented} with --heads; leave it out")
    weights = {}
    for name, weight in _by_head("head-weights", "NUMBER", options.head_weights or ()).items():
        try:
            weights[name] = float(weight)
        except ValueError as error:
            raise UserError(f"--head-weights must be HEAD=NUMBER for each head once; received {weight}") from error
    kinds = _by_head("heads", "KIND", options.heads or (), ":")
    train, dev = ((files_by_head(file) if file else None) or file for file in (options.train_file, options.dev_file))
    return data.heads(train, kinds, weights=weights, dev=dev, soft_labels=soft_labels, **table.of_heads)


def _read(options: TaskOptions, table: TableOptions, augmented: str | None, soft_labels: tuple[str, ...]) -> TaskData:
    from pocketbert import data
    from pocketbert.data.label_order import in_label_order
    from pocketbert.data.readers.question_tasks import QUESTION_TASKS, is_question_file
    from pocketbert.data.readers.tagged_texts import is_tagged_file

    # `problems` has checked the required options.
    folder, train_file, task = options.data or "", options.train_file or "", options.task
    if options.heads:
        return _read_heads(options, table, augmented, soft_labels)
    reads = TASK_RULES[options.kind].reads
    asks = task in QUESTION_TASKS or any(is_question_file(path) for path in (train_file, options.dev_file))
    if augmented and asks:
        raise UserError(f"questions must have no augmented file; received {augmented}; leave --augmented-file out")
    if options.labels and (asks or reads == "pairs"):
        raise UserError(
            f"--labels is for classes and spans; received {','.join(options.labels)} for "
            f"{'questions' if asks else 'embeddings'}; leave it out"
        )
    for name in ("negative_column", "max_score", "pooling") if reads != "pairs" else ():
        if (value := getattr(options, name)) != getattr(TaskOptions, name):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{flag} is for --kind=embedding; received {value} with {task or options.kind}; leave it out"
            )
    if soft_labels and (asks or task or reads == "pairs"):
        received = "questions" if asks else task or "embeddings"
        raise UserError(
            f"--soft-label-columns is for labels of texts and words in your own file; received {','.join(soft_labels)} "
            f"for {received}; leave it out"
        )
    if asks and task:
        return data.questions(task, folder)
    if asks:
        return data.questions(train_file, dev=options.dev_file, skip_bad_rows=table.skip_bad_rows)
    if reads == "spans" or is_tagged_file(train_file):
        if augmented:
            raise UserError(f"spans must have no augmented file; received {augmented}; leave --augmented-file out")
        kind: dict[str, Any] = {"kind": options.kind} if reads == "spans" else {}
        kind |= {"soft_labels": soft_labels}
        return data.tagged(train_file, dev=options.dev_file, label_names=options.labels, **kind, **table.tagged)
    if reads == "pairs":
        return _pairs(options, table)
    if task == _XNLI:
        xnli = data.xnli(folder, train=options.train_file, languages=options.languages, augmented=augmented)
        return in_label_order(xnli, options.labels)
    if task:
        return in_label_order(data.glue(task, folder, augmented=augmented), options.labels)
    return data.table(
        train_file,
        text=table.text_column,
        pair=table.pair_column,
        label=table.label_column,
        dev=options.dev_file,
        augmented=augmented,
        kind=options.kind,
        label_names=options.labels,
        soft_labels=soft_labels,
        label_separator=table.label_separator,
        separator=table.separator,
        skip_bad_rows=table.skip_bad_rows,
    )
