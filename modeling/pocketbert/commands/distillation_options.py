"""The options that say what is distilled from what: method, teacher, student and data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from pocketbert.commands import task_options
from pocketbert.commands.command_line import Options, last_value
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.distillation.methods import get_method, names
from pocketbert.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationOptions:
    """Method, teacher and student.

    Attributes:
      method: distillation method; add --help to list its options.
      teacher: model directory of the teacher: fine-tuned on the task, or with MLM and NSP heads for --pretraining-data.
      student: preset or config.json for random weights, or a model directory.
      teacher_layers: initialize from these teacher layers, for example 1,3,5; without --student they are the student.
    """

    GROUP: ClassVar = "Model"

    method: str = option(suggestions=names)
    teacher: str | None = None
    student: str | None = None
    teacher_layers: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationDataOptions:
    """Data besides the examples of a task.

    Attributes:
      augmented_file: augmented training examples from pocketbert augment.
      text: plain text for general distillation: a file, or a folder such as WikiExtractor's.
      pretraining_data: folder from pocketbert pretrain-data, for methods with MLM and NSP losses.
      dev_pretraining_data: dev split in the same format, for evaluation.
    """

    GROUP: ClassVar = "Data"

    augmented_file: str | None = None
    text: str | None = None
    pretraining_data: str | None = None
    dev_pretraining_data: str | None = None


OPTIONS = (DistillationOptions, TaskOptions, TableOptions, DistillationDataOptions)


def chosen_options(arguments: Sequence[str]) -> tuple[type, ...]:
    """The options of the method that a command line names, if it names one."""
    chosen = last_value("method", arguments)
    return () if not chosen else (get_method(chosen),)


def variants() -> list[list[str]]:
    """A command line for each method."""
    return [[f"--method={name}"] for name in names()]


def problems(options: Options) -> list[str]:
    """What is wrong with the choice of student and data."""
    models, task, data = options[DistillationOptions], options[TaskOptions], options[DistillationDataOptions]
    found = []
    if not models.student and not models.teacher_layers:
        found.append("--student is required, or --teacher-layers; received neither")
    if task.given:
        found += task_options.problems(task)
    kinds = [bool(each) for each in (task.given, data.text, data.pretraining_data)]
    if sum(kinds) > 1:
        found.append(
            "a run learns from a task's examples, from plain text (--text) or from pretraining examples "
            "(--pretraining-data); received more than one of them; make a run of each"
        )
    elif not any(kinds):
        found.append(
            "the data are --task and --data, --train-file and --dev-file, --text for general distillation, or "
            "--pretraining-data; received none of them"
        )
    if data.augmented_file and not task.given:
        found.append("--augmented-file belongs to a task; received it without one")
    if data.dev_pretraining_data and not data.pretraining_data:
        found.append("--dev-pretraining-data goes with --pretraining-data; received the former alone")
    return found


def student(options: Options) -> Any:
    """What `distill` takes as its student."""
    models = options[DistillationOptions]
    if not models.teacher_layers:
        return models.student
    from pocketbert.distillation.initialization import TeacherLayers

    return TeacherLayers(models.teacher_layers, models.student)


def method(options: Options) -> Any:
    """The method with its options."""
    return options[get_method(options[DistillationOptions].method)]


def data(options: Options) -> Any:
    """The `TaskData`, `TextData` or `PretrainingData` that the options name.

    Raises:
      UserError: unreadable files.
    """
    named = options[DistillationDataOptions]
    if named.pretraining_data:
        from pocketbert.data.pretraining_data import PretrainingData

        return PretrainingData.open(named.pretraining_data, named.dev_pretraining_data)
    from pocketbert.data.task_data import TextData

    if named.text:
        return TextData(named.text)
    return task_options.read(options[TaskOptions], options[TableOptions], named.augmented_file)
