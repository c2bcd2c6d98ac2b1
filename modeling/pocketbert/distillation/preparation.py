"""Everything about a distillation that is known, and checked, before anything is written."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.feature_layout import MANIFEST_NAME
from pocketbert.data.feature_store import FeatureStore
from pocketbert.data.text import text_files
from pocketbert.distillation.initialization import StudentPlan, plan_student, vocabulary_of
from pocketbert.distillation.method import Method, Setting, Stage, Vocabulary, check_setting
from pocketbert.distillation.run_options import RunOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256
from pocketbert.progress import say, track
from pocketbert.training.callbacks import LINE_NAMES
from pocketbert.training.checkpointing import digest_directory, digest_examples

# Names of transformers for labels that nobody named.
_NAMELESS = re.compile(r"LABEL_\d+")


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task and its examples.

    Attributes:
      task: classification or regression.
      train: examples, labelled where a stage learns from their labels.
      dev: labelled examples, for the metrics that choose the best checkpoint.
      metrics: names for `pocketbert.tasks.metrics.compute`.
      main_metric: the one of them that chooses.
      augmented: the training examples with augmented ones, labelled likewise; None takes the training examples alone.
    """

    task: TaskConfig
    train: Examples
    dev: Examples
    metrics: Sequence[str]
    main_metric: str
    augmented: Examples | None = None


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A distillation before its first step.

    Attributes:
      method: the method.
      options: its options.
      run: how it is run.
      stages: what it does.
      setting: teacher, student and task.
      student: where the student comes from.
      vocabulary: of teacher and student.
      teacher_directory: where the teacher is; None where only a store of it is there.
      store: the folder of stored targets, or None for a live teacher.
      task_data: the task's examples; None for general distillation.
      text: plain text for general distillation, or None.
    """

    method: Method
    options: Any
    run: RunOptions
    stages: tuple[Stage, ...]
    setting: Setting
    student: StudentPlan
    vocabulary: Vocabulary
    teacher_directory: Path | None
    store: Path | None
    task_data: TaskData | None
    text: Path | None

    def recorded(self) -> dict[str, Any]:
        """All that decides the result, as JSON values, for a run's `run.json`."""
        recorded: dict[str, Any] = {"method": self.method.name}
        run = dataclasses.asdict(self.run)
        del run["checkpoint_seconds"]
        recorded |= run | {f"option_{name}": value for name, value in dataclasses.asdict(self.options).items()}
        recorded["student_start"] = self.student.start
        recorded["student_layers"] = list(self.student.layers)
        recorded |= {f"student_{name}": value for name, value in dataclasses.asdict(self.student.config).items()}
        if self.student.directory is not None:
            recorded["student_sha256"] = digest_directory(self.student.directory)
        if self.teacher_directory is not None:
            recorded["teacher_sha256"] = digest_directory(self.teacher_directory)
        if self.store is not None:
            manifests = sorted(self.store.glob(f"*/{MANIFEST_NAME}"))
            recorded["store_sha256"] = hashlib.sha256(" ".join(map(sha256, manifests)).encode()).hexdigest()
        if self.text is not None:
            recorded["text_sha256"] = _text_digest(self.text)
        data = self.task_data
        if data is not None:
            recorded |= {f"task_{name}": value for name, value in dataclasses.asdict(data.task).items()}
            recorded |= {"metrics": list(data.metrics), "main_metric": data.main_metric}
            for name in ("train", "dev", "augmented"):
                examples = getattr(data, name)
                recorded[f"{name}_sha256"] = None if examples is None else digest_examples(examples)
        return recorded


def prepare(
    *,
    method: Method,
    options: Any,
    run: RunOptions,
    student: str | Path | EncoderConfig | None,
    teacher_layers: Sequence[int],
    teacher_directory: Path | None,
    store: Path | None,
    task_data: TaskData | None,
    text: Path | None,
) -> Preparation:
    """Reads configurations, makes the stages and compares everything that must match; no weights are made.

    Args:
      method: the method.
      options: its options.
      run: how it is run.
      student: as for `distill`.
      teacher_layers: the layers of the teacher that the student starts from, or none.
      teacher_directory: the teacher, or None.
      store: stored targets, or None.
      task_data: what the student learns, or None.
      text: plain text, or None.

    Returns:
      All that a run needs.

    Raises:
      UserError: lists everything that does not match, each with its remedy.
    """
    if teacher_directory is None and store is None:
        raise UserError("a distillation needs a teacher's model directory or a store of its targets; received neither")
    if task_data is None and text is None:
        raise UserError("a distillation needs a task's examples or plain text; received neither")
    if task_data is not None:
        _check_task_data(task_data)
    teacher, teacher_task, teacher_vocabulary = _describe_teacher(teacher_directory, store)
    planned = plan_student(student, teacher, teacher_layers=teacher_layers)
    task = None if task_data is None else task_data.task
    setting = Setting(
        teacher=teacher,
        student=planned.config,
        task=task,
        pairs=task_data is not None and task_data.train.pairs is not None,
        teacher_task=_same_labels(teacher_task, task),
        teacher_vocabulary=teacher_vocabulary,
        student_vocabulary=planned.vocabulary,
        start=planned.start,
    )
    stages = check_setting(method, setting, options)
    problems = [problem for stage in stages for problem in _stage_problems(stage, task_data, text, store)]
    vocabulary = teacher_vocabulary or planned.vocabulary
    if vocabulary is None:
        problems.append(
            "texts cannot be cut into tokens without a vocab.txt; neither the teacher's folder nor the student's has "
            "one; put the vocabulary there"
        )
    if store is None and teacher_task is None and any("logits" in stage.teacher_features for stage in stages):
        problems.append("the teacher must have a head for the task; it is a bare encoder; fine-tune it first")
    raise_if_any(problems, method.name)
    assert vocabulary is not None
    if any(stage.data == "augmented" for stage in stages) and task_data is not None and task_data.augmented is None:
        say(
            f"{method.name} trains on augmented examples; none are given, so the {len(task_data.train)} original ones "
            "are used (pocketbert augment makes more)"
        )
    return Preparation(
        method=method,
        options=options,
        run=run,
        stages=stages,
        setting=setting,
        student=planned,
        vocabulary=vocabulary,
        teacher_directory=teacher_directory,
        store=store,
        task_data=task_data,
        text=text,
    )


def _describe_teacher(
    directory: Path | None, store: Path | None
) -> tuple[EncoderConfig, TaskConfig | None, Vocabulary | None]:
    if store is None:
        assert directory is not None
        found = read_directory(directory)
        return found.config, found.tasks[0] if found.tasks else None, vocabulary_of(directory)
    # Not even the teacher's weights are read.
    stages = sorted(path.parent for path in store.glob(f"*/{MANIFEST_NAME}"))
    if not stages:
        raise UserError(f"{store}: the store must hold a folder a stage, from pocketbert teacher-dump; there is none")
    stored = FeatureStore.open(stages[0], verify=False)
    path, lowercase = stored.vocabulary
    return stored.teacher_config, stored.teacher_task, Vocabulary(path=path, lowercase=lowercase)


def _same_labels(theirs: TaskConfig | None, ours: TaskConfig | None) -> TaskConfig | None:
    """The teacher's task with our labels, where its own say nothing or are the same in other letters."""
    if theirs is None or ours is None or len(theirs.labels) != len(ours.labels):
        return theirs
    nameless = all(map(_NAMELESS.fullmatch, theirs.labels))
    if theirs.labels and nameless and theirs.labels != ours.labels:
        say(f"the teacher's labels have no names; its logits are taken as {', '.join(ours.labels)}, in this order")
    if nameless or [label.casefold() for label in theirs.labels] == [label.casefold() for label in ours.labels]:
        return dataclasses.replace(theirs, labels=ours.labels)
    return theirs


def _stage_problems(stage: Stage, task_data: TaskData | None, text: Path | None, store: Path | None) -> list[str]:
    problems = []
    where = f"stage {stage.name}"
    if stage.data == "text" and text is None:
        problems.append(f"{where} learns from plain text; received none; give it (--text)")
    if stage.data in ("task", "augmented") and task_data is None:
        problems.append(f"{where} learns from a task's examples; received none; give a task and its data")
    if "labels" in stage.label_names and task_data is not None:
        augmented = task_data.augmented if stage.data == "augmented" else None
        examples = task_data.train if augmented is None else augmented
        if examples.labels is None:
            problems.append(f"{where} learns from labels; {examples.source} has none; give labelled examples")
    if store is not None and stage.teacher_features:
        if stage.masked_text:
            problems.append(
                f"{where} masks its text anew in each epoch, which no stored targets can follow; give a live teacher, "
                "or leave masking out"
            )
        elif not (store / stage.name / MANIFEST_NAME).exists():
            problems.append(
                f"{where} needs its targets in {store / stage.name}; there are none; make them with pocketbert "
                "teacher-dump, or give a live teacher"
            )
    if stage.keep == "best" and "logits" not in stage.student_features:
        problems.append(f"{where} keeps the best weights by a metric, and so must read the student's logits")
    taken = {"loss", "learning_rate", *LINE_NAMES} & set(stage.weights)
    if taken:
        problems.append(f"{where}: no term of the loss may be called {', '.join(sorted(taken))}")
    return problems


def _check_task_data(data: TaskData) -> None:
    problems = []
    if data.task.kind not in ("classification", "regression"):
        problems.append(f"the task must be classification or regression; received {data.task.kind}")
    if data.main_metric not in data.metrics:
        problems.append(f"the main metric must be among {', '.join(data.metrics)}; received {data.main_metric}")
    for name, examples in (("training", data.train), ("development", data.dev), ("augmented", data.augmented)):
        if examples is None:
            continue
        if not len(examples):
            problems.append(f"there must be {name} examples; {examples.source} holds none")
        elif examples.labels is None and name == "development":
            problems.append(f"{name} examples need labels; {examples.source} has none")
        if (examples.pairs is None) != (data.train.pairs is None):
            problems.append(f"{name} examples must be pairs where the training examples are; {examples.source} differs")
    raise_if_any(problems, "distillation")


def _text_digest(path: Path) -> str:
    """SHA-256 of a text's files in the order of their reading; where they lie, and since when, does not matter."""
    digests = [sha256(file) for file in track(text_files(path), "hash the text", "file")]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()
