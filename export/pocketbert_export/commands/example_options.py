"""Options for labelled examples, shared by several commands."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.commands.task_options import TableOptions
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.heads_config import files_by_head
from pocketbert.options import DirectoryPath, FilePath
from pocketbert_runtime.label_names import are_placeholders

if TYPE_CHECKING:
    from pocketbert.data.examples import Examples, LabelledData
    from pocketbert.data.readers.questions import QuestionFile
    from pocketbert.data.readers.tagged_texts import TaggedTexts


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleOptions:
    """Labelled examples.

    Attributes:
      task: GLUE task, xnli, squad, squad2, tydiqa or mlqa (default: the model's own).
      data: folder with the task's files.
      split: split to read.
      file: instead of --data: your .csv, .tsv or .jsonl table, a .json or .jsonl file with questions, or a .conll or
        .jsonl file with spans. For several heads also a file for each, as intent=intents.csv,slots=slots.jsonl.
      labels: labels for 0, 1, … in --file, in this order (default: the order of --task); for a model with the labels
        LABEL_0, LABEL_1, … the order of its logits.
      languages: with --task=xnli: languages, such as en,de (default: all).
    """

    GROUP: ClassVar = "Data"
    COMMON: ClassVar = ("task", "data", "file")

    task: str | None = None
    data: DirectoryPath | None = None
    split: str = "dev"
    file: FilePath | None = None
    labels: tuple[str, ...] | None = None
    languages: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Metric for the verification gate.

    Attributes:
      metric: metric for the verification gate: accuracy, f1 or matthews; pearson or spearman for scores; exact_match or
        f1 for questions (default: a GLUE task's main metric, otherwise accuracy, spearman or f1).
    """

    GROUP: ClassVar = "Verification"

    metric: str | None = None


OPTIONS = (ExampleOptions, TableOptions)


def read(
    options: ExampleOptions, table: TableOptions, task: TaskConfig | None, *, labelled: bool | None = True
) -> LabelledData | None:
    """Reads the options' examples, as the task reads them; None if the options name none.

    Span models get questions; with several languages, the English ones. Without a task, the examples have no labels.

    Args:
      options: the source.
      table: format of tables.
      task: the model's task; labels follow the order of its logits.
      labelled: whether a table must have labels: None reads them if it has the default column, False never.
    Raises:
      UserError: both --data and --file, unreadable files, or labels that differ from the model's.
    """
    from pocketbert.tasks.registry import get_task

    if task is not None and get_task(task).needs_pairs:
        files = question_files(options, table, task)
        return None if not files else files.get("en") or files.get("en-en") or next(iter(files.values()))
    return read_texts(options, table, task, labelled=labelled)


def question_files(options: ExampleOptions, table: TableOptions, task: TaskConfig) -> dict[str, QuestionFile]:
    """Reads questions by language or pair of languages, `""` without one; {} without a source.

    Raises:
      UserError: unreadable files, or a task without questions.
    """
    from pocketbert.data.readers.question_tasks import QUESTION_TASKS, question_paths
    from pocketbert.data.readers.questions import QuestionFile

    name = options.task or task.name
    check_source(options, task)
    if options.file:
        return {"": QuestionFile(options.file, skip_bad=table.skip_bad_rows)}
    if not options.data:
        return {}
    if name not in QUESTION_TASKS:
        raise UserError(
            f"--data needs --task, for a model that answers questions one of {', '.join(QUESTION_TASKS)}; received "
            f"{name or 'none'}; a file of your own goes with --file"
        )
    paths = question_paths(name, options.data, options.split)
    return {part: QuestionFile(path) for part, path in paths.items()}


def read_texts(
    options: ExampleOptions, table: TableOptions, task: TaskConfig | None, *, labelled: bool | None = True
) -> Examples | TaggedTexts | None:
    """Reads examples for a model that classifies or scores texts, or finds spans in them; see `read`."""
    from pocketbert.data.readers.glue import glue_task, read_glue
    from pocketbert.data.readers.tables import read_table, table_columns
    from pocketbert.data.readers.xnli import XNLI, read_xnli
    from pocketbert.progress import log_info
    from pocketbert.tasks.base import SupervisedTask
    from pocketbert.tasks.embedding import SentenceEmbedding
    from pocketbert.tasks.registry import get_task
    from pocketbert.tasks.texts import TextTask
    from pocketbert_export.checks.label_order import in_order_of, logit_positions, order_of_numbers, with_label_names

    name = options.task or (task.name if task is not None else "")
    check_source(options, task)
    task = None if task is None else with_label_names(task, options.labels)
    text_task = None if task is None else get_task(task)
    reads = text_task.file_options(table) if isinstance(text_task, SupervisedTask) else None
    if reads is not None:
        return _read_own_file(options, text_task, reads)
    if options.file:
        if isinstance(text_task, SentenceEmbedding) and table.pair_column and labelled is not False:
            return text_task.read(options.file, **table.rows, label_column=table.one_label)
        columns = table.label_column if isinstance(text_task, TextTask) and labelled is not False else ()
        if labelled is None and columns == TableOptions.label_column and not options.labels:
            columns = columns if {*columns} <= {*table_columns(options.file, table.separator)} else ()
        numbers = order_of_numbers(task, options.task, options.labels) if task and task.labels else None
        numbered_task = numbers or task
        if task is not None and numbers is not None:
            # Checked before the rows, because each would fail.
            logit_positions(task, numbers)
        examples, _ = read_table(
            options.file,
            **table.rows,
            label_column=columns,
            labels=numbered_task.labels if numbered_task is not None and numbered_task.labels else None,
            numbered=numbers is not None,
            kind="classification" if task is None else task.rules.label_form,
            label_separator=table.label_separator,
        )
        return examples if task is None or numbers is None else in_order_of(task, numbers, examples)
    if not options.data:
        return None
    if not name:
        raise UserError("--data needs --task, a GLUE task, because the model does not name its own; received none")
    if name == XNLI.name:
        data_task = XNLI
        examples = read_xnli(options.data, options.split, options.languages)
    else:
        data_task = glue_task(name).task
        examples = read_glue(name, options.data, options.split)
    if task is not None and are_placeholders(task.labels):
        log_info(
            f"the model's labels {', '.join(task.labels)} are placeholders; its logits are read as "
            f"{', '.join(data_task.labels)}, in this order; pass --labels for another order"
        )
    return examples if task is None else in_order_of(task, data_task, examples)


def _read_own_file(options: ExampleOptions, task: Any, reads: dict[str, Any]) -> Any:
    flags = [f"--{name}" for name in ("task", "data", "labels") if getattr(options, name)]
    if flags:
        raise UserError(
            f"a model for {task.kind} reads a file of your own; received {' and '.join(flags)}; pass --file alone"
        )
    if not options.file:
        return None
    return task.read((files_by_head(options.file) if task.parts else None) or options.file, **reads)


def check_source(options: ExampleOptions, task: TaskConfig | None) -> None:
    """Raises a `UserError` unless there is one source, and languages and labels stand only where they apply."""
    from pocketbert.data.readers.xnli import XNLI

    name = options.task or (task.name if task is not None else "")

    if options.data and options.file:
        raise UserError(f"give --data or --file, not both; received {options.data} and {options.file}")
    if options.languages and (name != XNLI.name or not options.data):
        raise UserError(
            f"--languages needs --task={XNLI.name} and --data; received it with {options.file or name or 'no task'}; "
            "leave it out"
        )
    has_classes = task is not None and bool(task.labels)
    # The caller may have replaced the placeholders by these names already.
    unnamed = task is not None and (are_placeholders(task.labels) or task.labels == options.labels)
    if options.labels and not (has_classes and (options.file or (options.data and unnamed))):
        where = "a model without classes"
        if has_classes:
            where = "--data, whose labels have names, as the model's" if options.data else "no file"
        raise UserError(
            "--labels names the classes of --file for a model with classes, or a model's placeholders LABEL_0, …; "
            f"received {','.join(options.labels)} with {where}; leave it out"
        )
