"""The training file's columns, kept by runs and bundles as defaults for later commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.heads_config import files_in
from pocketbert.json_reading import read_toml
from pocketbert.progress import log_info
from pocketbert_runtime.json_reading import read_json

if TYPE_CHECKING:
    from pocketbert.commands.command_line import Options

_BUNDLE_FILE, _RUN_FILE = "bundle.json", "run.toml"
_TABLES = (".csv", ".tsv", ".jsonl")
# Key in bundle.json → option.
OPTION_OF = {"text": "text_column", "pair": "pair_column", "label": "label_column", "separator": "separator"}


def given_columns(options: Options, task: TaskConfig) -> dict[str, Any]:
    """The columns of a training table for `bundle.json`; without a pair column, that key is left out."""
    if not options[TaskOptions].train_file or task.rules.reads not in ("table", "pairs", "heads"):
        return {}
    table = options[TableOptions]
    columns = {key: getattr(table, name) for key, name in OPTION_OF.items()}
    return {key: [*value] if isinstance(value, tuple) else value for key, value in columns.items() if value is not None}


def stored_columns(folder: str | Path) -> dict[str, Any]:
    """Returns the columns kept in a bundle, or in the run around a model directory; {} without any."""
    folder = Path(folder)
    try:
        if (folder / _BUNDLE_FILE).exists():
            description = read_json(folder / _BUNDLE_FILE)
            columns = description.get("columns", {}) if isinstance(description, dict) else {}
        else:
            content = read_toml(folder.resolve().parent / _RUN_FILE)
            columns = {key: content.get(name.replace("_", "-")) for key, name in OPTION_OF.items()}
            # A run on a known task has no file of its own.
            columns = {key: value for key, value in columns.items() if value} if content.get("train-file") else {}
    except UserError:
        return {}
    values = list(columns.values()) if isinstance(columns, dict) else [None]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    fits = all(isinstance(text, str) for text in texts)
    return {key: value for key, value in columns.items() if key in OPTION_OF} if fits else {}


def stored_task(folder: str | Path) -> TaskConfig | None:
    """Reads a task without TensorFlow; None without one, or if files are damaged: opening the model says why."""
    try:
        if (Path(folder) / _BUNDLE_FILE).exists():
            description = read_json(Path(folder) / _BUNDLE_FILE)
            task = description.get("pairs", description)["task"]
            return TaskConfig(**{**task, "labels": tuple(task["labels"])}) if task else None
        from pocketbert.checkpoints.directory import describe_directory

        tasks = describe_directory(folder).tasks
        return tasks[0] if tasks else None
    except (UserError, KeyError, TypeError, AttributeError, OSError):
        return None


def use(options: Options, folder: str | Path, file: str | None) -> None:
    """Takes a model's or bundle's training columns as defaults, if the file has them; logs a line."""
    files = files_in(file) if file else []
    suffixes = {path: Path(path).suffix.lower() for path in files if Path(path).suffix.lower() in _TABLES}
    if not suffixes:
        return
    from pocketbert.data.readers.tables import table_columns

    defaults = {OPTION_OF[key]: value for key, value in stored_columns(folder).items()}
    defaults = {name: value for name, value in defaults.items() if name in options.values and not options.given(name)}
    separator = defaults.get("separator", options.values["separator"])
    columns = {
        column
        for path, suffix in suffixes.items()
        for column in table_columns(path, separator if suffix == ".csv" else ",")
    }
    taken: dict[str, Any] = {}
    for name, value in defaults.items():
        named = value if isinstance(value, list) else [value]
        # With several heads, HEAD=COLUMN.
        if name != "separator" and not all(column.rpartition("=")[2] in columns for column in named):
            continue
        value = tuple(value) if isinstance(value, list) else value
        if name == "label_column" and isinstance(value, str):
            value = (value,)
        if value != options.values[name]:
            taken[name] = value
    if "separator" in taken and set(taken) == {"separator"} and options.values["text_column"] not in columns:
        return
    if taken:
        options.resolve(**taken)
        shown = " ".join(
            f"--{name.replace('_', '-')}={','.join(value) if isinstance(value, tuple) else value}"
            for name, value in taken.items()
        )
        log_info(f"columns of the training file: {shown}")


def check(options: Options, task: TaskConfig | None, *files: str | None, labelled: bool | None = True) -> None:
    """Checks that tables have the columns to read, before TensorFlow is imported; a `UserError` names a missing one.

    With `labelled=None`, texts without labels will do, unless the user names a column.
    """
    from pocketbert.data.readers.tables import LABEL_COLUMN, check_columns, has_labels

    table = options.values
    for file in files:
        if not file or (task is not None and task.rules.reads not in ("table", "pairs")):
            continue
        text_columns = [table["text_column"], table["pair_column"]]
        check_columns(file, [column for column in text_columns if column], table["separator"])
        if labelled is False or task is None or task.rules.reads == "pairs":
            continue
        may_lack = labelled is None and table["label_column"] == (LABEL_COLUMN,) and not options.given("label_column")
        if not may_lack or has_labels(file, task.labels, text_columns, table["separator"]):
            check_columns(file, table["label_column"], table["separator"])
