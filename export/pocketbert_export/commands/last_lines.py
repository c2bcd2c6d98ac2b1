"""The command to try next, as the last line on stderr."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pocketbert.heads_config import files_in

if TYPE_CHECKING:
    from pocketbert.commands.task_options import TableOptions, TaskOptions
    from pocketbert.configs import TaskConfig

_QUESTION = '{"question": "Who wrote it?", "context": "Ada wrote it."}'
_PAIR = '{"text": "A first text.", "pair": "A second text."}'


def predict_line(
    bundle: Path, config: TaskConfig, task_options: TaskOptions, table: TableOptions, *, has_pairs: bool
) -> str:
    """Returns a `pocketbert predict` line for a shell, ready to run; your own file is the input."""
    from pocketbert.data.readers.tagged_texts import is_tagged_file
    from pocketbert.tasks.registry import get_task

    command = ["pocketbert", "predict", f"--model={bundle}"]
    path = task_options.dev_file or task_options.train_file
    if path and task_options.heads:
        # With a file for each head, the first one has texts, too.
        path = files_in(path)[0]
    questions = get_task(config).needs_pairs
    if not path or task_options.task:
        text = _QUESTION if questions else _PAIR if has_pairs else "A text of your own."
        return f"echo {shlex.quote(text)} | {shlex.join(command)}"
    columns: Mapping[str, object] = {}
    if not questions and not is_tagged_file(path):
        is_table = Path(path).suffix.lower() in (".csv", ".tsv")
        columns = {"text_column": table.text_column, "pair_column": table.pair_column}
        if has_pairs and not table.pair_column:
            columns = {**columns, "pair_column": "pair"}
        if is_table:
            columns = {**columns, "separator": table.separator, "skip_bad_rows": table.skip_bad_rows}
    default = type(table)()
    command.append(f"--input={path}")
    command += [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in columns.items()
        if value != getattr(default, name)
    ]
    return shlex.join(command)
