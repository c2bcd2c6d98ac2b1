"""The flags with which several commands are told where labelled text is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from pocketbert.commands import task_flags
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError

if TYPE_CHECKING:
    from pocketbert.data.examples import Examples
    from pocketbert.data.questions import QuestionFile


# Of `export` and `verify`.
METRIC_HELP = (
    "what the gate scores labels with: accuracy, f1 or matthews, of scores pearson or spearman, of questions "
    "exact_match or f1 (default: a GLUE task's main metric; else accuracy, of scores spearman, of questions f1)"
)


def define(flag_values: flags.FlagValues) -> None:
    """Defines `--task`, `--data`, `--split`, `--file` and the names of a file's columns."""
    flags.DEFINE_string(
        "task",
        None,
        "GLUE task that --data holds, xnli, squad, squad2, tydiqa or mlqa (default: the model's own)",
        flag_values=flag_values,
    )
    flags.DEFINE_string("data", None, "folder with the task's files", flag_values=flag_values)
    flags.DEFINE_string("split", "dev", "which of the task's files", flag_values=flag_values)
    flags.DEFINE_string(
        "file",
        None,
        "in place of --data: a .csv, .tsv or .jsonl file, or a .json or .jsonl file of questions",
        flag_values=flag_values,
    )
    task_flags.define_table(flag_values)
    flags.DEFINE_string("label-column", "label", "column of --file with the label or labels", flag_values=flag_values)
    task_flags.define_label_separator(flag_values)
    flags.DEFINE_list(
        "labels",
        None,
        "the labels that 0, 1, … in --file stand for, in that order (default: the order of --task)",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "languages", None, "with --task=xnli: which, such as en,de (default: all)", flag_values=flag_values
    )


def read(flag_values: flags.FlagValues, task: TaskConfig | None) -> Examples | QuestionFile | None:
    """Reads what the flags name.

    Args:
      flag_values: with this module's flags.
      task: the model's; labels are read in the order of its logits.

    Returns:
      The examples, of a span model questions (of several languages those in English), or None if the flags name none.
      Without a task they have no labels.

    Raises:
      UserError: both --data and --file, unreadable files, or labels that are not the model's.
    """
    from pocketbert.tasks.registry import get_task

    if task is not None and get_task(task).needs_pairs:
        files = question_files(flag_values, task)
        return None if not files else files.get("en") or files.get("en-en") or next(iter(files.values()))
    return read_texts(flag_values, task)


def question_files(flag_values: flags.FlagValues, task: TaskConfig) -> dict[str, QuestionFile]:
    """The questions that the flags name, by language or pair of languages, `""` where it is not said; {} for none.

    Raises:
      UserError: unreadable files, or a task that is none of questions.
    """
    from pocketbert.data.question_tasks import QUESTION_TASKS, question_paths
    from pocketbert.data.questions import QuestionFile

    name = flag_values.task or task.name
    _check_source(flag_values, name, task)
    if flag_values.file:
        return {"": QuestionFile(flag_values.file, skip_bad=flag_values["skip-bad-rows"].value)}
    if not flag_values.data:
        return {}
    if name not in QUESTION_TASKS:
        raise UserError(
            f"--data needs --task, for a model that answers questions one of {', '.join(QUESTION_TASKS)}; received "
            f"{name or 'none'}; a file of your own goes with --file"
        )
    paths = question_paths(name, flag_values.data, flag_values.split)
    return {part: QuestionFile(path) for part, path in paths.items()}


def read_texts(flag_values: flags.FlagValues, task: TaskConfig | None) -> Examples | None:
    """As `read`, for a model that answers texts."""
    from pocketbert.data.glue import glue_task, read_glue
    from pocketbert.data.tables import read_table
    from pocketbert.data.xnli import XNLI, read_xnli
    from pocketbert.tasks.registry import get_task
    from pocketbert.tasks.texts import TextTask
    from pocketbert_export.label_order import in_order_of, logit_positions, order_of_numbers

    name = flag_values.task or (task.name if task is not None else "")
    _check_source(flag_values, name, task)
    if flag_values.file:
        made = None if task is None else get_task(task)
        labelled = isinstance(made, TextTask)
        numbers = order_of_numbers(task, flag_values.task, flag_values.labels) if task and task.labels else None
        own = numbers or task
        if task is not None and numbers is not None:
            # Before the rows, which would each be refused for it.
            logit_positions(task, numbers)
        examples, _ = read_table(
            flag_values.file,
            **task_flags.table_options(flag_values),
            label_column=flag_values["label-column"].value if labelled else None,
            labels=own.labels if own is not None and own.labels else None,
            numbered=numbers is not None,
            kind=made.label_form if isinstance(made, TextTask) else "classification",
            label_separator=flag_values["label-separator"].value,
        )
        return examples if task is None or numbers is None else in_order_of(task, numbers, examples)
    if not flag_values.data:
        return None
    if not name:
        raise UserError("--data needs --task, a GLUE task, since the model does not name its own; received none")
    if name == XNLI.name:
        given = XNLI
        examples = read_xnli(flag_values.data, flag_values.split, flag_values.languages)
    else:
        given = glue_task(name).task
        examples = read_glue(name, flag_values.data, flag_values.split)
    return examples if task is None else in_order_of(task, given, examples)


def _check_source(flag_values: flags.FlagValues, name: str, task: TaskConfig | None) -> None:
    """That one is named, and languages and labels only where they choose."""
    from pocketbert.data.xnli import XNLI

    if flag_values.data and flag_values.file:
        raise UserError(f"give --data or --file, not both; received {flag_values.data} and {flag_values.file}")
    if flag_values.languages and (name != XNLI.name or not flag_values.data):
        raise UserError(f"--languages belongs to {XNLI.name}; received it with {flag_values.file or name or 'no task'}")
    if flag_values.labels and not (flag_values.file and task is not None and task.labels):
        where = "--data" if flag_values.data else "another model" if flag_values.file else "no file"
        raise UserError(
            "--labels names the classes of --file for a model that has classes; received "
            f"{','.join(flag_values.labels)} with {where}; leave it out"
        )
