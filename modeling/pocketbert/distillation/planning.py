"""Makes and validates the plan for a distillation before a run writes files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pocketbert.checkpoints.directory import DirectoryDescription, describe_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.manifests import MANIFEST_NAME
from pocketbert.data.task_data import TaskData
from pocketbert.distillation import layer_maps
from pocketbert.distillation.initialization import SupernetSlices, TeacherLayers, plan_student
from pocketbert.distillation.method import DistillationSpec, Method, validated_stages
from pocketbert.distillation.plan import DistillationPlan, read_of_teacher
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.distillation.teacher_cache_identity import cached_manifests, one_origin_problems
from pocketbert.errors import UserError, raise_if_any
from pocketbert.heads_config import same_heads, with_poolings_of
from pocketbert.hub.download import local
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.registry import TASKS
from pocketbert.training.config import RunConfig
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import ModelInit, vocabulary_of, with_options, with_own_embedding
from pocketbert.training.plan import open_data, unused_options
from pocketbert.training.run_data import Data, RunData
from pocketbert.training.stage import Stage
from pocketbert.training.stage_log import LINE_NAMES
from pocketbert_runtime.heads_config import without_labels
from pocketbert_runtime.label_names import are_placeholders, label_positions
from pocketbert_runtime.tokenizers.truncation import HEAD

_T = TypeVar("_T")
# A student with random weights also has to learn the language. On 20,000 sentences of SST-2 it stays 7 points below its
# teacher (docs/results/tinybert.md).
_MANY_EXAMPLES = 20_000


def plan_distillation(
    student: str | os.PathLike[str] | EncoderConfig | TeacherLayers | SupernetSlices,
    data: Data,
    *,
    teacher: str | os.PathLike[str] | CachedTeacher | None,
    method: Method,
    run: RunConfig,
    frozen: FrozenWeights = FrozenWeights(),  # noqa: B008
) -> DistillationPlan:
    """Reads configurations, makes the stages and validates them without making weights.

    Raises:
      UserError: lists all incompatibilities, each with its remedy.
    """
    if not isinstance(teacher, CachedTeacher):
        teacher_directory, cache = None if teacher is None else Path(teacher), None
    else:
        teacher_directory, cache = local(teacher.teacher), teacher.folder
    if teacher_directory is not None and isinstance(data, TaskData):
        data = with_own_embedding(data, teacher_directory)
    opened = open_data(data)

    def reads(name: str, description: DirectoryDescription) -> bool:
        try:
            planned = plan_student(student, description.config)
            stages = method.stages(_spec(description, planned, opened, is_cached=True))
        except UserError:
            return False
        return any(stage.name == name and stage.teacher_features for stage in stages)

    # Data, teacher and student are checked by themselves first, because only readable ones can be compared.
    problems = opened.problems([kind for kind, task in TASKS.items() if task.distillable])
    described = _attempt(problems, describe_teacher, teacher_directory, cache, reads)
    planned = None
    if described is not None or (teacher_directory is None and cache is None):
        planned = _attempt(problems, plan_student, student, described and described.config)
    raise_if_any(problems, method.name)
    assert planned is not None
    if isinstance(data, TaskData):
        data = dataclasses.replace(data, task=_like_heads(data.task, planned, described))
        opened = open_data(data)
    spec = _spec(described, planned, opened, is_cached=cache is not None)
    stages, unfit = validated_stages(method, spec)
    if unfit:
        problems.append(f"teacher and student do not match: {'; '.join(unfit)}")
    if stages:
        problems += opened.stage_problems(stages)
        problems += [
            problem for stage in stages for problem in _stage_problems(method, stage, opened, described, cache)
        ]
        if all(stage.data in opened.served for stage in stages):
            vocabularies = {"the teacher": spec.teacher_vocabulary, "the student": spec.student_vocabulary}
            problems += opened.model_problems(stages, "student", spec.student, vocabularies)
    if run.qat != "none" and len(stages) == 1 and spec.start == "random":
        problems.append(
            f"qat needs a trained student, because {method.name} has only one stage; received random weights; distil "
            "without qat first, and give that student"
        )
    vocabulary = spec.teacher_vocabulary or planned.vocabulary or opened.vocabulary
    crosses = bool(spec.tokenizer_difference)
    if vocabulary is None:
        problems.append(
            "tokenization needs a vocab.txt or another tokenizer's files; teacher and student have none; put them into "
            "one of their model directories"
        )
    if cache is not None and vocabulary is not None:
        _attempt(problems, vocabulary.options.require_default, "a teacher cache", "distil with the teacher itself")
    if isinstance(data, TaskData) and data.least_confidence is not None:
        if teacher_directory is None:
            problems.append("least_confidence needs the teacher itself; received none; give it, or leave it out")
        elif lacking := without_labels(data.task):
            problems.append(f"least_confidence is for labels; received {lacking}; leave it out")
    if run.teacher_precision is not None and any(stage.teacher_features for stage in stages):
        if cache is not None or not any(read_of_teacher(stage, opened) for stage in stages):
            what = "cached targets" if cache is not None else "soft labels"
            problems.append(
                f"teacher_precision is for a teacher that runs; received {run.teacher_precision} with {what}; leave it "
                "out"
            )
    if cache is not None:
        reading = [stage.name for stage in stages if stage.teacher_features]
        manifests = _attempt(problems, cached_manifests, cache, reading)
        problems += one_origin_problems(manifests or {})
    problems += _soft_label_problems(
        opened,
        stages,
        run,
        cached=cache is not None,
        copies_layers=bool(planned.layers),
        has_teacher=teacher_directory is not None,
    )
    raise_if_any([*problems, *unused_options(run, stages, opened, vocabulary)], method.name)
    assert vocabulary is not None
    read, kept = vocabulary.truncation, planned.vocabulary.truncation if planned.vocabulary else HEAD
    if crosses:
        assert planned.vocabulary is not None
        vocabulary = dataclasses.replace(planned.vocabulary, truncation=read)
        log_info(
            f"teacher and student have different tokenizers ({spec.tokenizer_difference}); each reads the texts with "
            "its own"
        )
    if run.truncation is None and read != kept:
        log_info(
            f"longer texts are cut as the teacher cuts them ({read}), and the student keeps this; pass "
            f"{argument('truncation', kept)} to cut them in another way"
        )
    for line in method.summary(spec):
        log_info(line)
    task, read_as = _first_task(described), spec.teacher_task
    if task and read_as and task != read_as and are_placeholders(task.labels):
        log_info(
            f"the teacher's labels {', '.join(task.labels)} are placeholders; its logits are read as "
            f"{', '.join(read_as.labels)}, in this order; pass {argument('label_names')} for another order"
        )
    if any(opened.part(stage) != stage.data for stage in stages):
        log_info(
            f"{method.name} trains on augmented examples; none are given, so it uses the {len(opened.given.train)} "
            "original ones (pocketbert augment makes more)"
        )
    return DistillationPlan(
        objective=method,
        options={
            f"option_{name}": value
            for name, value in dataclasses.asdict(method).items()
            if name not in ("schedule", "label_weight") or value is not None
        },
        stages=stages,
        run=run,
        start=planned,
        tasks=opened.tasks,
        vocabulary=vocabulary,
        data=opened,
        frozen=frozen,
        spec=spec,
        teacher_directory=teacher_directory,
        teacher_cache=cache,
        teacher_vocabulary=spec.teacher_vocabulary if crosses else None,
    )


def describe_teacher(
    directory: Path | None, cache: Path | None, reads: Callable[[str, DirectoryDescription], bool]
) -> DirectoryDescription | None:
    """Describes a teacher from its model directory or, without reading weights, from a teacher cache.

    Args:
      directory: the teacher's model directory, or None. Next to a cache, only its vocabulary is used.
      cache: teacher cache folder, or None; it knows one task at most.
      reads: tells whether the run's stage with this name reads a teacher.
    Raises:
      UserError: the directory is not a model directory, or the cache is empty or damaged.
    """
    if cache is None:
        if directory is None:
            return None
        description = describe_directory(directory)
        return dataclasses.replace(description, vocabulary=with_options(description.vocabulary))
    vocabulary = None if directory is None else vocabulary_of(directory)
    described = {
        name: DirectoryDescription(
            config=manifest.teacher_config,
            tasks=(manifest.teacher_task,) if manifest.teacher_task else (),
            vocabulary=vocabulary or manifest.tokenizer_files(cache / name),
        )
        for name, manifest in cached_manifests(cache).items()
    }
    if not described:
        raise UserError(f"{cache}: a teacher cache has one folder per stage, from pocketbert cache-teacher; found none")
    # The folder may also contain other teachers' stages, such as the encoder from general distillation.
    readable = [teacher for name, teacher in described.items() if reads(name, teacher)]
    return [*readable, *described.values()][0]


def same_labels(teacher: TaskConfig | None, student: TaskConfig | None, *, reorder: bool = False) -> TaskConfig | None:
    """Returns the teacher's task with our labels, if its labels are placeholders or the same names.

    Args:
      teacher: the teacher's task.
      student: the student's task.
      reorder: whether the same names may have another order, because the loaded teacher's logits are reordered.
    """
    if teacher is None or student is None or len(teacher.labels) != len(student.labels):
        return teacher
    positions = label_positions(student.labels, teacher.labels)
    same = positions is not None and (reorder or positions == list(range(len(positions))))
    return dataclasses.replace(teacher, labels=student.labels) if same or are_placeholders(teacher.labels) else teacher


def warn_of_few_examples(plan: DistillationPlan) -> None:
    """Warns about a student with random weights and few examples, and names the alternative."""
    data, spec = plan.data.given, plan.spec
    if spec.start != "random" or not isinstance(data, TaskData):
        return
    count = len(data.train if data.augmented is None else data.augmented) + len(data.unlabelled or ())
    if count >= _MANY_EXAMPLES:
        return
    remedy = f"start from a pretrained model directory instead ({argument('student', 'DIR')})"
    if plan.teacher_directory is not None:
        layers = layer_maps.uniform(min(spec.student.num_layers, spec.teacher.num_layers), spec.teacher.num_layers)
        remedy = (
            f"pass {argument('teacher_layers', layers, python=f'pb.TeacherLayers({layers})')} instead of "
            f"{argument('student', python='new weights')}"
        )
    log_info(
        f"{plan.objective.name}: the student starts from random weights, and {count:,} examples are too few to learn a "
        f"language: expect a score far below the teacher's; {remedy}"
    )


def _spec(
    teacher: DirectoryDescription | None, planned: ModelInit, data: RunData, *, is_cached: bool
) -> DistillationSpec:
    task = data.task
    return DistillationSpec(
        teacher=teacher.config if teacher else planned.config,
        student=planned.config,
        task=task,
        pairs=data.has_pairs and (task is None or task.pairs is None),
        # Cached logits keep their order; a cache has no heads.
        teacher_task=same_labels(_first_task(teacher), task, reorder=not is_cached),
        teacher_heads=tuple(head.kind for head in teacher.tasks) if teacher and not is_cached else None,
        teacher_vocabulary=teacher.vocabulary if teacher else None,
        student_vocabulary=planned.vocabulary,
        soft_labels=data.has_soft_labels,
        start="random" if planned.untrained else planned.start,
    )


def _first_task(teacher: DirectoryDescription | None) -> TaskConfig | None:
    return teacher.tasks[0] if teacher and teacher.tasks else None


def _like_heads(task: TaskConfig, student: ModelInit, teacher: DirectoryDescription | None) -> TaskConfig:
    """Returns the student's task: its head reads pairs and answers like the head that it copies or continues."""
    source = teacher if student.layers else student.description
    heads = source.tasks[: 1 if student.layers else None] if source else ()
    for head in heads:
        if task.tasks and same_heads(head, task):
            several: TaskConfig = with_poolings_of(task, head)
            return several
    pooling = next((head.pooling for head in heads if head.pooling), None)
    if task.rules.head != "sentence":
        return task
    activation = next((head.activation for head in heads if head.activation), None)
    if activation is not None and task.rules.num_outputs == 1:
        task = dataclasses.replace(task, activation=activation)
    models = [model for model in (teacher, student.description) if model is not None and model.tasks]
    pairs = task.pairs or next((head.pairs for head in models[0].tasks if head.pairs), None) if models else task.pairs
    if pairs != task.pairs:
        whose = "the teacher" if models[0] is teacher else "its head"
        log_info(f"the student reads the two texts of a pair one by one, as {whose} does")
    return dataclasses.replace(task, pooling=pooling, pairs=pairs)


def _attempt(problems: list[str], call: Callable[..., _T], *arguments: Any, **options: Any) -> _T | None:
    """Returns a call's result; after a `UserError`, adds it to the problems and returns None."""
    try:
        return call(*arguments, **options)
    except UserError as error:
        problems.append(str(error))
        return None


def _soft_label_problems(
    data: RunData, stages: Sequence[Stage], run: RunConfig, *, cached: bool, copies_layers: bool, has_teacher: bool
) -> list[str]:
    """Returns options without effect beside soft labels."""
    if not data.has_soft_labels:
        return []
    problems, option = [], argument("soft_label_columns", python="soft_labels")
    if not any("logits" in stage.teacher_features for stage in stages):
        problems.append(f"no stage learns the teacher's logits, so soft labels have no effect; leave out {option}")
    if cached:
        problems.append(
            "soft labels replace the teacher's logits; received a teacher cache, too; leave out one of them"
        )
    elif has_teacher and not copies_layers and not any(read_of_teacher(stage, data) for stage in stages):
        problems.append(f"soft labels replace the teacher, of which no stage reads more; leave it out, or {option}")
    if run.label_smoothing:
        problems.append("label_smoothing is for labels; received it with soft labels; leave it out")
    if data.given.augmented is not None:
        problems.append(f"augmented examples have no soft labels; leave out {argument('augmented')}")
    return problems


def _stage_problems(
    method: Method, stage: Stage, data: RunData, teacher: DirectoryDescription | None, cache: Path | None
) -> list[str]:
    problems = []
    where = f"stage {stage.name}"
    needed = read_of_teacher(stage, data)
    if needed and teacher is None:
        given = (
            "soft labels, which are logits alone"
            if data.has_soft_labels
            else "neither a model directory nor a teacher cache"
        )
        problems.append(f"{where} reads {', '.join(needed)} from a teacher; received {given}; give the teacher, too")
    if cache is not None and stage.teacher_features:
        reason = data.uncacheable(stage) or method.uncacheable(stage)
        if reason:
            problems.append(reason)
        elif not (cache / stage.name / MANIFEST_NAME).exists():
            problems.append(
                f"{where} needs targets in {cache / stage.name}; found none; create them with pocketbert "
                "cache-teacher, or give a live teacher"
            )
    if stage.keep == "best" and "logits" not in stage.student_features:
        problems.append(f"{where} keeps its best weights by a metric, so it must read the student's logits")
    taken = {"loss", "learning_rate", "skipped", "loss_scale", *LINE_NAMES} & set(stage.weights)
    if taken:
        problems.append(f"{where}: loss terms must not have the names {', '.join(sorted(taken))}")
    return problems
