r"""Distil a teacher into a small student.

Choose one kind of data:
  --task with --data    a task such as sst2
  --train-file          your own table or questions, as for finetune
  --text                plain text, to distil the encoder without a task
  --pretraining-data    a folder from pretrain-data, for methods with MLM and NSP losses

Stages with a task keep the weights with the best score on the dev split, other stages the last weights. --output
gets model/ (the student, a model directory), metrics.jsonl, tensorboard/ and result.json, which is also printed and
includes the teacher's metrics. Rerun the same command to resume; the result is bit-identical.

--compare adds the no-distillation baseline: the same student, fine-tuned on the labels only, from the same weights
and for the same number of steps, in OUTPUT/fine_tuned. Stdout, comparison.json and report.html compare teacher,
student and baseline. You can add --compare to a finished run, and show other finished runs beside it with
--compare-with, for example one with a live teacher next to one with a teacher cache.

--teacher-cache reads the targets from a folder made by cache-teacher instead of running the teacher.

Example:
  pocketbert distill --method=tinybert --teacher=runs/sst2/model --student=tinybert_4l_312d --task=sst2 --data=glue \
    --output=runs/sst2-tiny
  pocketbert distill --method=tinybert --teacher=runs/reviews/model --teacher-layers=1,3,5 --train-file=train.csv \
    --dev-file=dev.csv --text-column=review --label-column=stars --augmented-file=augmented.tsv --seeds=0,1,2 \
    --intermediate-epochs=3 --compare --output=runs/reviews-tiny
  pocketbert distill --method=tinybert --teacher=models/bert-base --student=tinybert_4l_312d --text=wikipedia \
    --output=runs/general
  pocketbert distill --method=mobilebert --teacher=runs/teacher/model --student=mobilebert_paper \
    --pretraining-data=data/wiki --dev-pretraining-data=data/wiki/dev --micro-batches=32 --output=runs/mobilebert
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from pocketbert.commands import runs, task_options
from pocketbert.commands.command_line import OptionGroup, Options, last_value
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.distillation.methods import get_method, names
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import AnyPath, DirectoryPath, FilePath, ModelPath, PresetOrPath, option
from pocketbert.training.config import RunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationOptions:
    """Method, teacher and student.

    Attributes:
      method: distillation method, such as tinybert; --method=tinybert --help lists its options.
      teacher: the teacher's model directory, fine-tuned on the task; with MLM and NSP heads for --pretraining-data.
      more_teachers: further teachers with the same labels; the student learns their mean predictions. The method must
        read logits alone.
      student: a preset or config.json for random weights, or a model directory.
      supernet: initialize the student with slices of this supernet's weights; the student is a preset or config.json.
      teacher_layers: initialize the student from these teacher layers, for example 1,3,5. Without --student, the
        student has exactly these layers.
    """

    GROUP: ClassVar = "Model"

    method: str = option(suggestions=names)
    teacher: ModelPath | None = None
    more_teachers: tuple[ModelPath, ...] = ()
    student: PresetOrPath | None = None
    supernet: ModelPath | None = None
    teacher_layers: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationDataOptions:
    """Data besides a task's examples.

    Attributes:
      soft_label_columns: columns in --train-file with each label's probability, in the order of --labels; or
        probabilities, as predict --soft-labels writes them into .jsonl, also for token_classification and --heads. They
        are the teacher's predictions, so methods that read logits alone need no --teacher.
      unlabelled_file: texts without labels, to learn the teacher's predictions on them too: a table with the columns of
        --train-file, or a file with a text per line. Texts in the dev split are left out.
      least_confidence: leave out unlabelled texts if the teacher's best label has a lower probability; with several
        heads, the least sure answer counts.
      augmented_file: augmented training examples from pocketbert augment.
      text: plain text for distillation without a task: a file or folder.
      pretraining_data: folder from pocketbert pretrain-data, for methods with MLM and NSP losses.
      dev_pretraining_data: dev split for --pretraining-data, such as its dev folder.
    """

    GROUP: ClassVar = "Data"

    soft_label_columns: tuple[str, ...] = ()
    unlabelled_file: FilePath | None = None
    least_confidence: float | None = None
    augmented_file: FilePath | None = None
    text: AnyPath | None = None
    pretraining_data: DirectoryPath | None = None
    dev_pretraining_data: DirectoryPath | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions:
    """Teacher cache and comparison.

    Attributes:
      teacher_cache: folder made by cache-teacher, instead of running the teacher.
      compare: add the no-distillation baseline.
      compare_learning_rate: the baseline's peak learning rate (default: as in the stage with the head).
      compare_with: folders with finished runs on the same dev split, to show in the comparison.
    """

    GROUP: ClassVar = "Run"

    teacher_cache: DirectoryPath | None = None
    compare: bool = False
    compare_learning_rate: float | None = None
    compare_with: tuple[DirectoryPath, ...] = ()


# cache-teacher takes these too.
PLAN_OPTIONS = (DistillationOptions, TaskOptions, TableOptions, DistillationDataOptions)
# RunFolderOptions has the seeds and --overwrite.
OPTIONS = (
    *PLAN_OPTIONS,
    RunFolderOptions,
    DistillOptions,
    OptionGroup(RunConfig, without=("seed", "show_texts", "overwrite")),
)


def chosen_options(arguments: Sequence[str]) -> tuple[type, ...]:
    """Returns the options dataclass for the method in `arguments`, if there is one."""
    chosen = last_value("method", arguments)
    return () if not chosen else (get_method(chosen),)


def variants() -> list[list[str]]:
    """Returns a command line for each usable method."""
    lines = []
    for name in names():
        with contextlib.suppress(UserError):
            get_method(name)
            lines.append([f"--method={name}"])
    return lines


def run(options: Options) -> int | None:
    """Distils once per seed; prints the result as JSON."""
    # First, because the rest imports TensorFlow.
    runs.check_output(options, single=not options[DistillOptions].compare)
    data = read_data(options)
    chosen, folder_options = options[DistillOptions], options[RunFolderOptions]
    seeds = folder_options.seeds
    arguments: dict[str, Any] = {
        "teacher": _teacher(options),
        "method": chosen_method(options),
        "run": dataclasses.replace(options[RunConfig], seed=seeds[0], overwrite=folder_options.overwrite),
    }
    positional = (chosen_student(options), data, folder_options.output)
    if chosen.compare:
        from pocketbert.distillation.comparison import distill_and_compare

        arguments |= {"learning_rate": chosen.compare_learning_rate, "others": chosen.compare_with}
        return runs.print_result(options, lambda: distill_and_compare(seeds, *positional, **arguments))
    from pocketbert.distillation.run import distill

    return runs.answer(options, distill, *positional, **arguments)


def _teacher(options: Options) -> Any:
    """Returns the teacher or its cache for `pocketbert.distill`."""
    models, cache = options[DistillationOptions], options[DistillOptions].teacher_cache
    teacher = models.teacher or None
    if not cache:
        return [teacher, *models.more_teachers] if models.more_teachers else teacher
    from pocketbert.distillation.teacher import CachedTeacher

    return CachedTeacher(cache, teacher)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    problems = []
    rate = options[DistillOptions].compare_learning_rate
    if rate is not None and not options[DistillOptions].compare:
        problems.append("--compare-learning-rate needs --compare; received it alone")
    elif rate is not None and not rate > 0:
        problems.append(f"--compare-learning-rate must be positive; received {rate}")
    if options[DistillOptions].compare_with and not options[DistillOptions].compare:
        problems.append("--compare-with needs --compare; received it alone")
    problems += plan_problems(options)
    if options[DistillationOptions].more_teachers:
        problems += [
            f"{flag} is for one teacher; received several; leave out --more-teachers"
            for flag, given in (
                ("--teacher-cache", options[DistillOptions].teacher_cache),
                ("--compare", options[DistillOptions].compare),
            )
            if given
        ]
    compared = options[TaskOptions].given or options[DistillationDataOptions].dev_pretraining_data
    if not compared and len(options[RunFolderOptions].seeds) > 1:
        problems.append("several --seeds need a task or --dev-pretraining-data to compare the runs; received neither")
    raise_if_any(problems, "distill")


def plan_problems(options: Options) -> list[str]:
    """Lists problems with the student and the data."""
    models, task, data = options[DistillationOptions], options[TaskOptions], options[DistillationDataOptions]
    problems = []
    if not models.student and not models.teacher_layers:
        problems.append("--student or --teacher-layers is required; received neither")
    if models.more_teachers and not models.teacher:
        problems.append("--more-teachers needs --teacher; received it alone")
    if models.supernet and models.teacher_layers:
        problems.append("a student starts from --supernet or --teacher-layers; received both; give one of them")
    if task.metric and not task.given:
        problems.append(f"--metric needs a task; received {task.metric} without one; leave it out")
    if task.given:
        problems += task_options.problems(task)
    kinds = [bool(each) for each in (task.given, data.text, data.pretraining_data)]
    if sum(kinds) > 1:
        problems.append(
            "a run must have one kind of data: a task, --text or --pretraining-data; received several; make one run "
            "for each"
        )
    elif not any(kinds):
        problems.append(
            "data must be --task and --data, --train-file, --text or --pretraining-data; received none of them"
        )
    if data.soft_label_columns and not task.train_file:
        problems.append("--soft-label-columns needs --train-file; received it alone")
    if data.unlabelled_file and not task.given:
        problems.append("--unlabelled-file needs a task; received it without one")
    problems += task_options.unlabelled_problems(data.unlabelled_file, data.least_confidence)
    if data.augmented_file and not task.given:
        problems.append("--augmented-file needs a task; received it without one")
    if data.dev_pretraining_data and not data.pretraining_data:
        problems.append("--dev-pretraining-data needs --pretraining-data; received it alone")
    return problems


def chosen_student(options: Options) -> Any:
    """Returns the student for `pocketbert.distill`."""
    models = options[DistillationOptions]
    if not models.teacher_layers and not models.supernet:
        return models.student
    from pocketbert.distillation.initialization import SupernetSlices, TeacherLayers

    if models.supernet:
        return SupernetSlices(models.supernet, models.student or "")
    return TeacherLayers(models.teacher_layers, models.student)


def chosen_method(options: Options) -> Any:
    """Returns the method with its options."""
    return options[get_method(options[DistillationOptions].method)]


def read_data(options: Options) -> Any:
    """Opens the data as `TaskData`, `TextData` or `PretrainingData`.

    Raises:
      UserError: unreadable files.
    """
    named = options[DistillationDataOptions]
    if named.pretraining_data:
        from pocketbert.data.pretraining.reader import PretrainingData

        return PretrainingData.open(named.pretraining_data, named.dev_pretraining_data)
    from pocketbert.data.task_data import TextData

    if named.text:
        return TextData(named.text)
    data = task_options.read_examples(
        options[TaskOptions], options[TableOptions], named.augmented_file, soft_labels=named.soft_label_columns
    )
    table = options[TableOptions]
    return task_options.with_unlabelled(data, named.unlabelled_file, named.least_confidence, table)
