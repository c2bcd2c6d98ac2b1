"""Runs a teacher once and writes a method's targets to a teacher cache."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, dataset
from pocketbert.data.teacher_cache.encodings import FLOAT_DTYPES, INDEX_ENCODINGS
from pocketbert.data.teacher_cache.targets import TargetSpec
from pocketbert.data.teacher_cache.writer import SHARD_BYTES, TeacherCachePlan, TeacherCacheWriter, open_writers
from pocketbert.data.teacher_rows import TEACHER_PREFIX, without_teacher_rows
from pocketbert.distillation.method import Method
from pocketbert.distillation.other_tokens import teacher_features
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.teacher_cache_identity import teacher_cache_identity, watched
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_json
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import bar
from pocketbert.training.run_folder import OPTIONS_FILE
from pocketbert.training.stage import Stage
from pocketbert.training.state import recorded_origin
from pocketbert_runtime.rows import bucketed

# The teacher's tokens per batch, so that short examples share a batch.
TOKENS_A_BATCH = 4096
DTYPE_NAMES = (*FLOAT_DTYPES, "int8")
# Batch sizes and lengths to find token axes; all numbers differ.
_TRIALS = ((2, 5), (3, 7))


def cache_stages(
    plan: DistillationPlan,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float16",
    masks: str = INDEX_ENCODINGS[0],
    overwrite: bool = False,
) -> list[Path]:
    """Writes the targets for every stage that reads the teacher, and returns the stages' folders.

    It computes the total size before it writes. If the teacher has a head for the task, `teacher.json` receives its
    metrics on the dev split.

    Args:
      plan: distillation plan with the teacher's model directory.
      output: teacher cache folder, with one subfolder per stage; pass it to `distill` as `CachedTeacher`. For a teacher
        from the hub, `run.json` has its commit.
      dtype: type of the stored numbers; with int8, each vector has a float16 scale, and head outputs are float16.
      masks: encoding for the indices of kept activations, one of `INDEX_ENCODINGS`.
      overwrite: discard caches that are finished or were made from other data.
    Raises:
      UserError: as for `cache_targets`, for all stages together; or no stage reads the teacher, or a stage cannot be
        cached.
    """
    assert plan.teacher_directory is not None
    stages = [stage for stage in plan.stages if stage.teacher_features]
    reasons = [plan.data.uncacheable(stage) or plan.objective.uncacheable(stage) for stage in stages]
    problems = [reason for reason in reasons if reason]
    if plan.data.has_soft_labels:
        option = argument("soft_label_columns", python="soft_labels")
        problems.append(f"a cache has the logits of its teacher, which soft labels replace; leave out {option}")
    if not stages:
        problems.append("no stage reads the teacher, so there are no targets to cache; change the method's options")
    raise_if_any(problems, plan.objective.name)
    teacher = plan.load_teacher()
    # Data in records are never cacheable, which was checked.
    encoded = [cast(EncodedExamples, plan.encoded(stage)).read_by_teacher for stage in stages]
    plans = [
        plan_teacher_cache(
            teacher, plan.teacher_directory, plan.objective, stage, examples, output, dtype=dtype, masks=masks
        )
        for stage, examples in zip(stages, encoded, strict=True)
    ]
    with open_writers(plans, overwrite=overwrite) as writers:
        if source := recorded_origin("teacher", plan.teacher_directory):
            # A resumed command takes the commit from here.
            write_json(Path(output) / OPTIONS_FILE, source)
        for stage, examples, writer in zip(stages, encoded, writers, strict=True):
            _write(teacher, plan.objective, stage, examples, writer)
    plan.cache_teacher_metrics(teacher, Path(output))
    return [plan.path for plan in plans]


def cache_targets(
    teacher: Model,
    teacher_directory: str | os.PathLike[str],
    method: Method,
    stage: Stage,
    encoded: EncodedExamples,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Writes `method.targets` for every example and returns the stage's folder; resumes an interrupted cache.

    The teacher runs without dropout, one shard at a time, in batches with one length. A shard's bytes depend only on
    its examples, so an interrupted cache ends with the same bytes.

    Args:
      teacher: the teacher, loaded from `teacher_directory`.
      teacher_directory: the teacher's model directory, for the cache's identity.
      method: the method.
      stage: a stage that reads the teacher.
      encoded: the stage's examples, from the teacher's tokenizer.
      output: teacher cache folder; the stage gets a subfolder with its name.
      overwrite: discard the stage's cache if it is finished or was made from other data.
      **options: `dtype` and `masks` as for `cache_stages`, and `shard_bytes`, a file's approximate size; an
        interruption loses at most as much work.
    Raises:
      UserError: the stage does not read the teacher, a target cannot be stored, a value does not fit `dtype`, the disk
        has too little room, or the folder contains other files.
    """
    plan = plan_teacher_cache(teacher, teacher_directory, method, stage, encoded, output, **options)
    with open_writers([plan], overwrite=overwrite) as (writer,):
        _write(teacher, method, stage, encoded, writer)
    return plan.path


def plan_teacher_cache(
    teacher: Model,
    teacher_directory: str | os.PathLike[str],
    method: Method,
    stage: Stage,
    encoded: EncodedExamples,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float16",
    masks: str = INDEX_ENCODINGS[0],
    shard_bytes: int = SHARD_BYTES,
) -> TeacherCachePlan:
    """Plans the files and sizes for `cache_targets`; same arguments and errors."""
    if not stage.teacher_features:
        raise UserError(f"stage {stage.name} does not read the teacher, so it has no targets to cache")
    for name, value, accepted in (("dtype", dtype, DTYPE_NAMES), ("masks", masks, INDEX_ENCODINGS)):
        if value not in accepted:
            raise UserError(f"{name} must be one of {', '.join(accepted)}; received {value}")
    tokenizer = teacher.tokenizer
    if tokenizer is None:
        raise UserError(
            f"the teacher must have a tokenizer; received {teacher_directory} without one; put its files there"
        )
    tokenizer.vocabulary.options.require_default("a teacher cache", "distil with the teacher itself")
    tokenizer.vocabulary.require_no_added("a teacher cache", "distil with the teacher itself")
    if tokenizer.vocabulary.add_prefix_space:
        raise UserError(
            "a teacher cache needs a tokenizer without add_prefix_space; received one; distil with the teacher itself"
        )
    targets, candidates, read = target_specs(teacher, method, stage, encoded, dtype, masks)
    identity = teacher_cache_identity(method, stage, encoded, teacher_directory=teacher_directory, tokenizer=tokenizer)
    decisive = {name: value for name, value in identity.options.items() if name in read}
    return TeacherCachePlan(
        path=Path(output) / stage.name,
        identity=dataclasses.replace(identity, options=decisive),
        teacher_config=teacher.config,
        teacher_task=teacher.task,
        vocabulary=tokenizer.vocabulary,
        targets=targets,
        lengths=encoded.lengths,
        candidates=candidates,
        shard_bytes=shard_bytes,
    )


def _write(teacher: Model, method: Method, stage: Stage, encoded: EncodedExamples, writer: TeacherCacheWriter) -> None:
    """Writes the missing shards."""
    pending = writer.pending
    plans = [_plan(encoded, shard.first, shard.examples) for shard in pending]
    batches = dataset(encoded, [indices for plan in plans for indices in plan])
    step = tf.function(
        lambda element: _targets(teacher, method, stage, element[0] if isinstance(element, tuple) else element),
        input_signature=[batches.element_spec],
    )
    tokens = int(encoded.lengths.sum())
    left = sum(int(encoded.lengths[indices].sum()) for plan in plans for indices in plan)
    stream = iter(batches)
    with bar(tokens, f"teacher, {stage.name}", "token", initial=tokens - left) as progress:
        for shard, plan in zip(pending, plans, strict=True):
            content = writer.blank(shard)
            for indices, batch in zip(plan, itertools.islice(stream, len(plan)), strict=True):
                values = {name: value.numpy() for name, value in step(batch).items()}
                content.put(indices - shard.first, values)
                progress.update(int(encoded.lengths[indices].sum()))
            writer.write(content)


def target_specs(
    teacher: Model,
    method: Method,
    stage: Stage,
    encoded: EncodedExamples,
    dtype: str,
    masks: str = INDEX_ENCODINGS[0],
) -> tuple[tuple[TargetSpec, ...], np.ndarray | None, set[str]]:
    """Finds a stage's target shapes, the tokens to keep per example, and the options that affect them.

    Evaluates `targets` with two batch sizes and two lengths. An axis that follows the length is a token axis.

    Returns:
      The targets ordered by name, `Method.candidates`, and the names of those options in `teacher_cache_identity`.
    Raises:
      UserError: a target's first axis is not the batch's, an axis changes in another way, or its type is not a number;
        lists all such targets.
    """
    limits = method.index_limits(stage, teacher.config)
    stage, read = watched(stage)
    candidates = method.candidates(stage, encoded)
    selects = candidates is not None
    trials = [_targets(teacher, method, stage, _trial(encoded, *sizes)) for sizes in _TRIALS]
    problems, specs = [], []
    for name in sorted(trials[0]):
        shapes = [tuple(trial[name].shape) for trial in trials]
        axes = list(zip(*shapes, strict=True)) if len(shapes[0]) == len(shapes[1]) else []
        sizes, lengths = zip(*_TRIALS, strict=True)
        if not axes or axes[0] != sizes:
            problems.append(f"the first axis of {name} must be the batch; received shapes {shapes[0]}, {shapes[1]}")
        elif any(axis != lengths and axis[0] != axis[1] for axis in axes[1:]):
            problems.append(
                f"axes of {name} must equal the sequence length or be constant; received {shapes[0]} for length "
                f"{lengths[0]} and {shapes[1]} for length {lengths[1]}"
            )
        elif not (trials[0][name].dtype.is_floating or trials[0][name].dtype.is_integer):
            problems.append(f"{name} must have numbers; received {trials[0][name].dtype.name}")
        else:
            shape = tuple(None if axis == lengths else int(axis[0]) for axis in axes[1:])
            if trials[0][name].dtype.is_integer:
                specs.append(_index_spec(name, shape, encoded.max_length, limits.get(name), masks, selects))
            else:
                specs.append(_number_spec(name, shape, dtype, selects))
    if problems or not specs:
        reason = "; ".join(problems) or "there are none"
        raise UserError(f"{method.name}: the targets of stage {stage.name} cannot be cached: {reason}")
    return tuple(specs), candidates, read


def _number_spec(name: str, shape: tuple[int | None, ...], dtype: str, selects: bool) -> TargetSpec:
    """Returns the layout for floating-point numbers."""
    if dtype != "int8":
        return TargetSpec(name=name, shape=shape, dtype=dtype, kept=selects)
    # A scale belongs to a vector with one size. Head outputs are few, and predictions need their precision.
    if len(shape) < 2 or shape[-1] is None:
        return TargetSpec(name=name, shape=shape, dtype="float16", kept=selects)
    return TargetSpec(name=name, shape=shape, dtype="int8", encoding="scaled", kept=selects)


def _index_spec(
    name: str, shape: tuple[int | None, ...], max_length: int, limit: int | None, masks: str, selects: bool
) -> TargetSpec:
    """Returns the layout for positions in a text or, with a limit, for indices of activations."""
    dtype = "uint8" if (limit or max_length) <= 256 else "uint16"
    if limit is None:
        return TargetSpec(name=name, shape=shape, dtype=dtype, kept=selects)
    return TargetSpec(name=name, shape=shape, dtype=dtype, encoding=masks, limit=limit, kept=selects)


def _targets(teacher: Model, method: Method, stage: Stage, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Computes targets as in a run with a live teacher, in float32."""
    features = teacher_features(teacher, inputs, stage.teacher_features)
    targets = method.targets(stage, features, without_teacher_rows(inputs))
    return {name: tf.cast(value, tf.float32) if value.dtype.is_floating else value for name, value in targets.items()}


def _trial(encoded: EncodedExamples, size: int, length: int) -> dict[str, tf.Tensor]:
    inputs = {name: tf.ones([size, length], tf.int32) for name in encoded.input_names}
    for prefix, rows in (("", encoded), (TEACHER_PREFIX, encoded.teacher_rows)):
        if rows is not None:
            inputs[f"{prefix}input_word_ids"] = tf.fill([size, length], rows.pad_token_id)
            inputs[f"{prefix}input_type_ids"] = tf.zeros([size, length], tf.int32)
    return inputs


def _plan(encoded: EncodedExamples, first: int, examples: int) -> list[np.ndarray]:
    """Batches consecutive examples: one length and about `TOKENS_A_BATCH` tokens per batch."""
    indices = np.arange(first, first + examples)
    widths = bucketed(encoded.lengths[indices], encoded.max_length)
    plan: list[np.ndarray] = []
    for width in np.unique(widths):
        rows, size = indices[widths == width], max(1, TOKENS_A_BATCH // int(width))
        plan += [rows[start : start + size] for start in range(0, len(rows), size)]
    return plan
