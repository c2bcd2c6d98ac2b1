"""The flags that say what is distilled from what: method, teacher, student and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from absl import flags

from pocketbert.commands import method_flags, task_flags
from pocketbert.errors import UserError


def define(flag_values: flags.FlagValues) -> None:
    """Defines the flags, but not those of a method."""

    def text(name: str, description: str) -> None:
        flags.DEFINE_string(name, None, description, flag_values=flag_values)

    method_flags.define_method(flag_values)
    text(
        "teacher",
        "the teacher's model directory: fine-tuned on the task, or for --pretraining-data with pretraining's two heads",
    )
    text("student", "a preset or a config.json for fresh weights, or a model directory to start from")
    flags.DEFINE_list(
        "teacher-layers",
        [],
        "start from these layers of the teacher, for example 1,3,5; without --student they are the student",
        flag_values=flag_values,
    )
    task_flags.define(flag_values)
    text("augmented-file", "the training examples with augmented ones, from pocketbert augment")
    text("text", "plain text for general distillation: a file, or a folder such as WikiExtractor's")
    text("pretraining-data", "a folder of pocketbert pretrain-data, for methods that learn from pretraining's examples")
    text("dev-pretraining-data", "held-out examples of the same kind, to evaluate by")


def problems(flag_values: flags.FlagValues) -> list[str]:
    """What is wrong with the choice of student and data."""
    found = []
    if not flag_values.student and not flag_values["teacher-layers"].value:
        found.append("--student is required, or --teacher-layers; received neither")
    if task_flags.given(flag_values):
        found += task_flags.problems(flag_values)
    elif not flag_values.text and not flag_values["pretraining-data"].value:
        found.append(
            "the data are --task and --data, --train-file and --dev-file, --text for general distillation, or "
            "--pretraining-data; received none of them"
        )
    elif flag_values["augmented-file"].value:
        found.append("--augmented-file belongs to a task; received it without one")
    if flag_values["dev-pretraining-data"].value and not flag_values["pretraining-data"].value:
        found.append("--dev-pretraining-data goes with --pretraining-data; received the former alone")
    return found


def pretraining(flag_values: flags.FlagValues) -> dict[str, Path | None]:
    """The folders of pretraining's examples, as arguments of `prepare` and `distill`."""
    folders = {
        "pretraining": flag_values["pretraining-data"].value,
        "dev_pretraining": flag_values["dev-pretraining-data"].value,
    }
    return {name: Path(folder) if folder else None for name, folder in folders.items()}


def teacher_layers(flag_values: flags.FlagValues) -> tuple[int, ...]:
    """The numbers of `--teacher-layers`.

    Raises:
      UserError: they are not whole numbers.
    """
    texts = flag_values["teacher-layers"].value
    try:
        return tuple(int(text) for text in texts)
    except ValueError:
        raise UserError(
            f"--teacher-layers must be whole numbers with commas between them; received {','.join(texts)}"
        ) from None


def task_data(flag_values: flags.FlagValues) -> Any:
    """The `TaskData` that the flags name, or None for general distillation.

    Raises:
      UserError: unreadable files.
    """
    if not task_flags.given(flag_values):
        return None
    from pocketbert.data.task_data import TaskData

    task = task_flags.read(flag_values)
    path = flag_values["augmented-file"].value
    augmented = task_flags.read_augmented(flag_values, path, task) if path else None
    return TaskData(**task._asdict(), augmented=augmented)
