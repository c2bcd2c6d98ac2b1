"""The flags with which commands that train are told a task and its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from pocketbert.errors import UserError

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.examples import Examples
    from pocketbert.data.questions import QuestionFile

_GLUE = ("task", "data")
_OWN = ("train-file", "dev-file")
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


def define_sentences(flag_values: flags.FlagValues, kinds: Sequence[str] = ("classification", "regression")) -> None:
    """Defines `--task`, `--data`, and of a file of one's own the columns of the sentences and the labels' kind."""

    def text(name: str, default: str | None, description: str) -> None:
        flags.DEFINE_string(name, default, description, flag_values=flag_values)

    text("task", None, "a GLUE task (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli)")
    text("data", None, "GLUE's folder, or the task's own in it")
    define_table(flag_values)
    flags.DEFINE_enum("kind", "classification", kinds, "what the labels are", flag_values=flag_values)


def define_label_separator(flag_values: flags.FlagValues) -> None:
    """Defines `--label-separator`."""
    flags.DEFINE_string(
        "label-separator",
        "|",
        "what separates the labels of a cell where a text has any number of them (multi_label)",
        flag_values=flag_values,
    )


def define_table(flag_values: flags.FlagValues) -> None:
    """Defines how a .csv, .tsv or .jsonl file is read: `--text-column`, `--pair-column` and the rows' form."""
    flags.DEFINE_string(
        "text-column", "text", "column of the sentence, or of the first sentence of a pair", flag_values=flag_values
    )
    flags.DEFINE_string("pair-column", None, "column of the second sentence", flag_values=flag_values)
    flags.DEFINE_string(
        "separator", ",", "what separates the columns of a .csv file: one character, or tab", flag_values=flag_values
    )
    flags.DEFINE_boolean(
        "skip-bad-rows",
        False,
        "leave out rows without a text or label, or with other columns than the header, and questions with a wrong "
        "answer, and count them",
        flag_values=flag_values,
    )


def table_options(flag_values: flags.FlagValues) -> dict[str, Any]:
    """The arguments of `read_table` that the flags of `define_table` give."""
    names = ("text-column", "pair-column", "separator", "skip-bad-rows")
    return {name.replace("-", "_"): flag_values[name].value for name in names}


def define(flag_values: flags.FlagValues) -> None:
    """Defines `--task` and `--data`, `--train-file` and `--dev-file`, and what the files hold."""

    def text(name: str, default: str | None, description: str) -> None:
        flags.DEFINE_string(name, default, description, flag_values=flag_values)

    define_sentences(flag_values, ("classification", "multi_label", "regression"))
    flag_values["task"].help += ", or xnli, squad, squad2 or tydiqa, with the folder of their files in --data"
    text("train-file", None, "instead of --task: a .csv, .tsv or .jsonl file, or a .json or .jsonl file of questions")
    text(
        "dev-file", None, "such a file, to choose the best checkpoint by (default: a tenth of --train-file, set aside)"
    )
    text("label-column", "label", "column of the label, labels or score")
    define_label_separator(flag_values)
    flags.DEFINE_list(
        "labels", None, "the labels in the order of the logits; else those found", flag_values=flag_values
    )
    flags.DEFINE_list(
        "languages", None, "of XNLI's development examples, such as en,de (default: all)", flag_values=flag_values
    )
    flag_values["train-file"].help += "; with xnli, where MultiNLI is if not in --data"


def given(flag_values: flags.FlagValues) -> set[str]:
    """Which of `--task`, `--data`, `--train-file` and `--dev-file` have a value."""
    return {name for name in (*_GLUE, *_OWN) if flag_values[name].value}


def problems(flag_values: flags.FlagValues) -> list[str]:
    """What is wrong with the choice of data, for a command that needs some."""
    named = given(flag_values)
    if flag_values.task == _XNLI:
        named -= {"train-file"}
    elif flag_values.languages:
        return [f"--languages belongs to --task={_XNLI}; received it with {flag_values.task or 'no task'}"]
    if named in ({*_GLUE}, {*_OWN}, {"train-file"}):
        return []
    return [
        "the data are either --task and --data or --train-file, with or without --dev-file; received "
        + (" and ".join(f"--{name}" for name in sorted(named)) or "none of them")
    ]


def read(flag_values: flags.FlagValues) -> TaskExamples:
    """Reads what the flags name.

    Raises:
      UserError: unreadable files.
    """
    from pocketbert.configs import TaskConfig
    from pocketbert.data.glue import GLUE, read_glue
    from pocketbert.data.question_tasks import QUESTION_TASKS, is_question_file
    from pocketbert.data.xnli import XNLI, read_xnli, read_xnli_training

    if flag_values.task == _XNLI:
        train = read_xnli_training(flag_values.data, flag_values["train-file"].value)
        dev = read_xnli(flag_values.data, "dev", flag_values.languages)
        return TaskExamples(XNLI, train, dev, *_metrics(XNLI))
    files = [flag_values[name].value for name in _OWN]
    if flag_values.task in QUESTION_TASKS or any(map(is_question_file, files)):
        return _read_questions(flag_values)
    if flag_values.task:
        if flag_values.task not in GLUE:
            known = [*GLUE, _XNLI, *(name for name, each in QUESTION_TASKS.items() if "train" in each.files)]
            raise UserError(f"no task {flag_values.task!r} to train on; the tasks are {', '.join(known)}")
        glue = GLUE[flag_values.task]
        train, dev = (read_glue(flag_values.task, flag_values.data, split) for split in ("train", "dev"))
        return TaskExamples(glue.task, train, dev, *_metrics(glue.task))
    given, labels = _read_table(flag_values, flag_values["train-file"].value, flag_values.labels)
    dev_file = flag_values["dev-file"].value
    train, dev = _with_held_out(
        flag_values, given, _read_table(flag_values, dev_file, labels or None)[0] if dev_file else None
    )
    task = TaskConfig(kind=flag_values.kind, labels=labels)
    return TaskExamples(task, train, dev, *_metrics(task))


def _metrics(config: TaskConfig) -> tuple[tuple[str, ...], str]:
    from pocketbert.tasks.registry import supervised_task

    task = supervised_task(config)
    return task.metrics, task.main_metric


def _read_questions(flag_values: flags.FlagValues) -> TaskExamples:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.question_tasks import read_questions
    from pocketbert.data.questions import QuestionFile

    # BERT's head for spans has no dropout (run_squad.py).
    span = TaskConfig(kind="span", name=flag_values.task or "", dropout=0.0)
    given: list[QuestionFile | None]
    if flag_values.task:
        own, dev = (read_questions(flag_values.task, flag_values.data, split) for split in ("train", "dev"))
        # Files of TyDi QA may keep the development answers back.
        given = [own, dev if dev.labelled else None]
    else:
        skip_bad = flag_values["skip-bad-rows"].value
        paths = [flag_values[name].value for name in _OWN]
        given = [QuestionFile(path, skip_bad=skip_bad) if path else None for path in paths]
    train, held_out = _with_held_out(flag_values, *given)
    return TaskExamples(span, train, held_out, *_metrics(span))


def read_augmented(flag_values: flags.FlagValues, path: str, task: TaskExamples) -> Examples:
    """Reads what `pocketbert augment` made of the task: in the file's own columns, or text, pair, label for GLUE's.

    Where a part of the training file is set aside, what is made from that part is left out.

    Raises:
      UserError: an unreadable file, or questions, which nothing augments.
    """
    from pocketbert.data.tables import read_table
    from pocketbert.tasks.registry import get_task
    from pocketbert.tasks.texts import TextTask

    made = get_task(task.task)
    if not isinstance(made, TextTask):
        raise UserError(f"questions on paragraphs cannot be augmented; received {path}; leave it out")

    if not flag_values.task:
        augmented, _ = _read_table(flag_values, path, task.task.labels or None)
        return augmented if flag_values["dev-file"].value else _without(flag_values, augmented, task.dev)
    examples, _ = read_table(
        path,
        text_column="text",
        pair_column="pair" if task.train.has_pairs else None,
        label_column="label",
        labels=task.task.labels or None,
        kind=made.label_form,
    )
    return examples


def _without(flag_values: flags.FlagValues, augmented: Examples, aside: Any) -> Examples:
    """The rows that are not made from the examples set aside."""
    from pocketbert.data.tables import read_table
    from pocketbert.progress import log_info

    path = augmented.source
    try:
        of_rows, _ = read_table(path, text_column="example", skip_bad_rows=flag_values["skip-bad-rows"].value)
    except UserError as error:
        raise UserError(
            f"{path}: where development examples are set aside from --train-file, the column 'example', as pocketbert "
            "augment writes it, must say what each row is made from; some have none; give --dev-file"
        ) from error
    # By their texts too: the numbers may be those of another file than --train-file.
    texts = set(aside.texts)
    name_of = dict(zip(of_rows.ids, of_rows.texts, strict=True))
    origins = [name_of.get(row) for row in augmented.ids]
    dropped = {None, *aside.ids, *(name for name, text in zip(origins, augmented.texts, strict=True) if text in texts)}
    kept = [index for index, name in enumerate(origins) if name not in dropped]
    log_info(f"{path}: left out {len(augmented) - len(kept)} rows, which are made from examples set aside")
    return augmented.select(kept)


def _with_held_out(flag_values: flags.FlagValues, train: Any, dev: Any) -> tuple[Any, Any]:
    """The two, where there is no second one a part of the first."""
    from pocketbert.data.train_dev_split import train_dev_split
    from pocketbert.progress import log_info

    if dev is not None:
        return train, dev
    train, dev = train_dev_split(train, stratify=True)
    remedy = "--data's development file has no answers" if flag_values.task else "--dev-file gives others"
    log_info(f"{len(dev)} of {len(dev) + len(train)} examples are set aside to choose by; {remedy}")
    return train, dev


def _read_table(
    flag_values: flags.FlagValues, path: str, labels: list[str] | tuple[str, ...] | None
) -> tuple[Examples, tuple[str, ...]]:
    from pocketbert.data.tables import read_table

    return read_table(
        path,
        **table_options(flag_values),
        label_column=flag_values["label-column"].value,
        labels=labels,
        # Labels that were found are in alphabetical order, which no other file need count in.
        numbered=bool(flag_values.labels),
        kind=flag_values.kind,
        label_separator=flag_values["label-separator"].value,
    )
