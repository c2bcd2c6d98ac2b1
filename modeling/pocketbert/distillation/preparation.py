"""Everything about a distillation that is known, and checked, before anything is written."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pocketbert.configs import EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.data.task_data import TaskData
from pocketbert.data.teacher_cache_layout import MANIFEST_NAME
from pocketbert.data.text import text_files
from pocketbert.distillation.initialization import StudentPlan, plan_student
from pocketbert.distillation.method import PRETRAINING_HEADS, Method, Setting, Stage, Vocabulary, compare_setting
from pocketbert.distillation.pretraining_data import open_data, pretraining_problems, unused_options
from pocketbert.distillation.run_options import RunOptions
from pocketbert.distillation.teacher_cache_identity import cached_manifests, one_origin_problems, teacher_caches_digest
from pocketbert.distillation.teacher_description import TeacherDescription, are_nameless, describe_teacher, same_labels
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256
from pocketbert.progress import log_info, track
from pocketbert.tasks.registry import TASKS, listed
from pocketbert.training.callbacks import LINE_NAMES
from pocketbert.training.checkpointing import digest_directory

if TYPE_CHECKING:
    from pocketbert.data.pretraining_data import PretrainingData

_T = TypeVar("_T")


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
      tasks: its heads.
      vocabulary: of teacher and student.
      teacher_directory: where the teacher is; None where only a store of it is there.
      store: the folder of stored targets, or None for a live teacher.
      task_data: the task's examples; None for general distillation.
      text: plain text for general distillation, or None.
      pretraining: pretraining's examples, or None.
      dev_pretraining: held-out ones, or None.
    """

    method: Method
    options: Any
    run: RunOptions
    stages: tuple[Stage, ...]
    setting: Setting
    student: StudentPlan
    tasks: tuple[TaskConfig, ...]
    vocabulary: Vocabulary
    teacher_directory: Path | None
    store: Path | None
    task_data: TaskData | None
    text: Path | None
    pretraining: PretrainingData | None = None
    dev_pretraining: PretrainingData | None = None

    @property
    def main_metric(self) -> str:
        """What choices are made by; empty where nothing is evaluated."""
        if self.task_data is not None:
            return self.task_data.main_metric
        return "masked_lm_accuracy" if self.dev_pretraining is not None else ""

    def recorded(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """All that decides the result, as JSON values, for a run's `run.json`.

        Args:
          before: what the run's `run.json` holds already; empty for a new run.
        """
        recorded: dict[str, Any] = {"method": self.method.name}
        run = dataclasses.asdict(self.run)
        for name in ("checkpoint_seconds", "tpu"):
            del run[name]
        # The names of what a run does not use stay out, so that runs from before there was a choice go on.
        if self.dev_pretraining is None:
            del run["evaluation_batches"]
        if not self.run.whole_words:
            del run["whole_words"]
        if self.run.distribution == "one":
            del run["distribution"]
        if self.run.teacher_precision is None:
            del run["teacher_precision"]
        recorded |= run | {f"option_{name}": value for name, value in dataclasses.asdict(self.options).items()}
        recorded["student_start"] = self.student.start
        recorded["student_layers"] = list(self.student.layers)
        recorded |= {f"student_{name}": value for name, value in dataclasses.asdict(self.student.config).items()}
        if self.student.directory is not None:
            recorded["student_sha256"] = digest_directory(self.student.directory)
        if self.teacher_directory is not None:
            recorded["teacher_sha256"] = digest_directory(self.teacher_directory)
        if self.store is not None:
            names = [stage.name for stage in self.stages if stage.teacher_features]
            recorded["store_sha256"] = teacher_caches_digest(self.store, names, before.get("store_sha256"))
        if self.text is not None:
            recorded["text_sha256"] = _text_digest(self.text)
            # Runs without it, older ones, had one segment and at most 20 masked words: they cannot go on with others.
            recorded["text_segments"] = [stage.text_segments for stage in self.stages if stage.data == "text"]
        for name in ("pretraining", "dev_pretraining"):
            if getattr(self, name) is not None:
                recorded[f"{name}_sha256"] = getattr(self, name).identity
        data = self.task_data
        if data is not None:
            recorded |= {f"task_{name}": value for name, value in dataclasses.asdict(data.task).items()}
            recorded |= {"metrics": list(data.metrics), "main_metric": data.main_metric}
            for name in ("train", "dev", "augmented"):
                examples = getattr(data, name)
                recorded[f"{name}_sha256"] = None if examples is None else examples.identity
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
    pretraining: Path | None = None,
    dev_pretraining: Path | None = None,
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
      pretraining: a folder of pretraining's examples, or None.
      dev_pretraining: a folder of held-out ones, or None.

    Returns:
      All that a run needs.

    Raises:
      UserError: lists everything that does not match, each with its remedy.
    """
    if task_data is None and text is None and pretraining is None:
        raise UserError("a run needs a task's examples, plain text or pretraining's examples; received none of them")

    def reads(name: str, teacher: TeacherDescription) -> bool:
        try:
            planned = plan_student(student, teacher.config, teacher_layers=teacher_layers)
            stages = method.stages(_setting(teacher, planned, task_data), options)
        except UserError:
            return False
        return any(stage.name == name and stage.teacher_features for stage in stages)

    # What is wrong with one of them by itself comes first: what cannot be read cannot be compared.
    problems = [] if task_data is None else _task_data_problems(task_data)
    teacher = _attempt(problems, describe_teacher, teacher_directory, store, reads)
    planned = None
    if teacher is not None:
        planned = _attempt(problems, plan_student, student, teacher.config, teacher_layers=teacher_layers)
    data = [_attempt(problems, open_data, folder) for folder in (pretraining, dev_pretraining)]
    raise_if_any(problems, method.name)
    assert teacher is not None and planned is not None
    setting = _setting(teacher, planned, task_data)
    stages, mismatches = compare_setting(method, setting, options)
    if mismatches:
        problems.append(f"this teacher and student do not fit: {'; '.join(mismatches)}")
    if stages:
        problems += _data_problems(stages, task_data, text)
        problems += pretraining_problems(stages, setting, data)
        problems += [problem for stage in stages for problem in _stage_problems(stage, teacher, store)]
    vocabulary = teacher.vocabulary or planned.vocabulary
    if vocabulary is None and data[0] is not None:
        vocabulary = Vocabulary(path=data[0].vocab_path, config=TokenizerConfig(lowercase=data[0].lowercase))
    if vocabulary is None:
        problems.append(
            "texts cannot be cut into tokens without a vocab.txt; neither the teacher's folder nor the student's has "
            "one; put the vocabulary there"
        )
    if store is not None and vocabulary is not None:
        _attempt(problems, vocabulary.config.require_default, "a teacher store", "distil with the teacher itself")
    if store is not None:
        reading = [stage.name for stage in stages if stage.teacher_features]
        manifests = _attempt(problems, cached_manifests, store, reading)
        problems += one_origin_problems(manifests or {})
    raise_if_any([*problems, *unused_options(run, stages, data[0])], method.name)
    assert vocabulary is not None
    theirs, ours = teacher.task, setting.teacher_task
    if theirs is not None and ours is not None and theirs != ours and are_nameless(theirs):
        log_info(f"the teacher's labels have no names; its logits are taken as {', '.join(ours.labels)}, in this order")
    if any(stage.data == "augmented" for stage in stages) and task_data is not None and task_data.augmented is None:
        log_info(
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
        tasks=_heads(stages, setting.task),
        vocabulary=vocabulary,
        teacher_directory=teacher_directory,
        store=store,
        task_data=task_data,
        text=text,
        pretraining=data[0],
        dev_pretraining=data[1],
    )


def _setting(teacher: TeacherDescription, planned: StudentPlan, task_data: TaskData | None) -> Setting:
    task = None if task_data is None else task_data.task
    return Setting(
        teacher=teacher.config or planned.config,
        student=planned.config,
        task=task,
        pairs=task_data is not None and task_data.train.has_pairs,
        teacher_task=same_labels(teacher.task, task),
        teacher_heads=teacher.heads,
        teacher_vocabulary=teacher.vocabulary,
        student_vocabulary=planned.vocabulary,
        start=planned.start,
    )


def _attempt(problems: list[str], call: Callable[..., _T], *arguments: Any, **options: Any) -> _T | None:
    """What the call gives, or None after its error is among the problems."""
    try:
        return call(*arguments, **options)
    except UserError as error:
        problems.append(str(error))
        return None


def _heads(stages: Sequence[Stage], task: TaskConfig | None) -> tuple[TaskConfig, ...]:
    """The student's heads: pretraining's, or the task's, or none."""
    if any(stage.data == "pretraining" for stage in stages):
        # Their logits come straight from the encoder's outputs: without dropout, as in BERT.
        return tuple(TaskConfig(kind=kind, dropout=0.0) for kind in PRETRAINING_HEADS)
    return (task,) if task else ()


def _data_problems(stages: Sequence[Stage], task_data: TaskData | None, text: Path | None) -> list[str]:
    """What a stage learns from and is not given, and what is given and no stage learns from."""
    problems = []
    for stage in stages:
        where = f"stage {stage.name}"
        if stage.data == "text" and text is None:
            problems.append(f"{where} learns from plain text; received none; give it (--text)")
        if stage.data in ("task", "augmented") and task_data is None:
            problems.append(f"{where} learns from a task's examples; received none; give a task and its data")
        if "labels" in stage.label_names and task_data is not None:
            augmented = task_data.augmented if stage.data == "augmented" else None
            examples = task_data.train if augmented is None else augmented
            if not examples.labelled:
                problems.append(f"{where} learns from labels; {examples.source} has none; give labelled examples")
    learned = {stage.data for stage in stages}
    if text is not None and "text" not in learned:
        problems.append(
            f"no stage of this run learns from plain text; received {text}; leave it out (--text), or learn from it in "
            "a run of its own, without a task"
        )
    if task_data is not None and task_data.augmented is not None and "augmented" not in learned:
        problems.append(
            f"no stage of this run learns from augmented examples; received {task_data.augmented.source}; leave them "
            "out (--augmented-file), or change the option that keeps the stages from them"
        )
    return problems


def _stage_problems(stage: Stage, teacher: TeacherDescription, store: Path | None) -> list[str]:
    problems = []
    where = f"stage {stage.name}"
    if stage.teacher_features and teacher.config is None:
        problems.append(
            f"{where} reads {', '.join(stage.teacher_features)} of a teacher; received neither a teacher's model "
            "directory nor a store of its targets"
        )
    if store is not None and stage.teacher_features:
        if stage.data == "pretraining":
            problems.append(
                f"{where} learns from pretraining's examples, whose masks are new in each epoch unless they are baked "
                "in, and whose logits over the vocabulary are too large to be stored; give a live teacher"
            )
        elif stage.masked_text:
            problems.append(
                f"{where} masks its text anew in each epoch, which no stored targets can follow; give a live teacher, "
                "or leave masking out"
            )
        elif not (store / stage.name / MANIFEST_NAME).exists():
            problems.append(
                f"{where} needs its targets in {store / stage.name}; there are none; make them with pocketbert "
                "cache-teacher, or give a live teacher"
            )
    if stage.keep == "best" and stage.data == "pretraining":
        problems.append(f"{where} keeps the best weights by a task's metric, which pretraining's examples do not have")
    elif stage.keep == "best" and "logits" not in stage.student_features:
        problems.append(f"{where} keeps the best weights by a metric, and so must read the student's logits")
    taken = {"loss", "learning_rate", *LINE_NAMES} & set(stage.weights)
    if taken:
        problems.append(f"{where}: no term of the loss may be called {', '.join(sorted(taken))}")
    return problems


def _task_data_problems(data: TaskData) -> list[str]:
    problems = []
    if not TASKS[data.task.kind].distillable:
        known = listed([kind for kind, task in TASKS.items() if task.distillable])
        problems.append(f"the task must be {known}; received {data.task.kind}")
    if data.main_metric not in data.metrics:
        problems.append(f"the main metric must be among {', '.join(data.metrics)}; received {data.main_metric}")
    for name, examples in (("training", data.train), ("development", data.dev), ("augmented", data.augmented)):
        if examples is None:
            continue
        if not len(examples):
            problems.append(f"there must be {name} examples; {examples.source} holds none")
        elif not examples.labelled and name == "development":
            problems.append(f"{name} examples need labels; {examples.source} has none")
        if examples.has_pairs != data.train.has_pairs:
            problems.append(f"{name} examples must be pairs where the training examples are; {examples.source} differs")
    return problems


def _text_digest(path: Path) -> str:
    """SHA-256 of a text's files in the order of their reading; where they lie, and since when, does not matter."""
    digests = [sha256(file) for file in track(text_files(path), "hash the text", "file")]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()
