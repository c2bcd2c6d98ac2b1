"""Running the teacher once: what a method's losses may know of it, written to a store."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, bucketed, dataset
from pocketbert.data.teacher_cache_layout import DTYPES, TargetSpec
from pocketbert.data.teacher_cache_writer import SHARD_BYTES, TeacherCachePlan, TeacherCacheWriter, open_writers
from pocketbert.distillation.evaluation import cache_teacher_metrics
from pocketbert.distillation.method import Method
from pocketbert.distillation.plan import DistillationPlan, uncacheable
from pocketbert.distillation.teacher_cache_identity import teacher_cache_identity, watched
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import Model, from_pretrained
from pocketbert.progress import bar, log_info
from pocketbert.training.stage import Stage
from pocketbert.training.stage_examples import StageExamples

# The teacher's batches: as many examples as have about so many tokens together, whatever their length.
TOKENS_A_BATCH = 4096
# Sizes of batches that targets are tried on: all different, so that what changes with what is seen.
_TRIALS = ((2, 5), (3, 7))


def cache_stages(
    plan: DistillationPlan, output: str | os.PathLike[str], *, dtype: str = "float16", overwrite: bool = False
) -> list[Path]:
    """Writes the targets of every stage of a distillation that reads something of the teacher.

    What all of them take is known before the first is written. The teacher's metrics on the development examples, if it
    has a head for the task, come beside them in `teacher.json`.

    Args:
      plan: of the distillation, with the teacher's folder.
      output: the folder of stores, one a stage; what `distill` takes as its store.
      dtype: of the stored numbers.
      overwrite: throw away finished stores, or stores made from something else.

    Returns:
      The stages' folders.

    Raises:
      UserError: as `cache_targets`, but that the disk must have room for all stages; no stage reads anything of the
        teacher, or one masks its text anew in each epoch.
    """
    assert plan.teacher_directory is not None
    stages = [stage for stage in plan.stages if stage.teacher_features]
    problems = [uncacheable(stage) for stage in stages if uncacheable(stage)]
    if not stages:
        problems.append("no stage reads anything of the teacher; there is nothing to cache")
    raise_if_any(problems, plan.objective.name)
    log_info(f"loading the teacher, {plan.teacher_directory}")
    teacher = from_pretrained(plan.teacher_directory)
    examples = StageExamples(plan.data, plan.vocabulary.tokenizer(), plan.run.seed)
    encoded = [examples.of_stage(stage) for stage in stages]
    plans = [
        plan_teacher_cache(teacher, plan.teacher_directory, plan.objective, stage, each, output, dtype=dtype)
        for stage, each in zip(stages, encoded, strict=True)
    ]
    with open_writers(plans, overwrite=overwrite) as writers:
        for stage, each, writer in zip(stages, encoded, writers, strict=True):
            _write(teacher, plan.objective, stage, each, writer)
    cache_teacher_metrics(teacher, plan, Path(output))
    return [plan.path for plan in plans]


def cache_targets(
    teacher: Model,
    teacher_directory: str | os.PathLike[str],
    method: Method,
    stage: Stage,
    encoded: EncodedExamples,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float16",
    overwrite: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Writes what `method.targets` gives for every example, or what is still missing of it.

    The teacher runs without dropout, in batches of one length, a shard's examples at a time; a shard's bytes depend on
    its examples alone, so that a dump that was killed ends as it would have.

    Args:
      teacher: loaded from `teacher_directory`.
      teacher_directory: its folder, for its identity.
      method: the method.
      stage: one that reads something of the teacher.
      encoded: the stage's examples, made by the teacher's tokenizer.
      output: the folder of stores; this one's is called like the stage.
      dtype: of the stored numbers.
      overwrite: throw away a finished store of the stage, or one made from something else.
      shard_bytes: about the size of a file; what a kill costs is the work of one.

    Returns:
      The stage's folder.

    Raises:
      UserError: the stage reads nothing of the teacher, a target cannot be stored, a value does not fit `dtype`, the
        disk has too little room, or the folder holds something else.
    """
    plan = plan_teacher_cache(
        teacher, teacher_directory, method, stage, encoded, output, dtype=dtype, shard_bytes=shard_bytes
    )
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
    dtype: str,
    shard_bytes: int = SHARD_BYTES,
) -> TeacherCachePlan:
    """What `cache_targets` writes, with its size; arguments and errors are those."""
    if not stage.teacher_features:
        raise UserError(f"stage {stage.name} reads nothing of the teacher; there is nothing to store")
    if dtype not in DTYPES:
        raise UserError(f"the stored type must be one of {', '.join(DTYPES)}; received {dtype}")
    tokenizer = teacher.tokenizer
    if tokenizer is None:
        raise UserError(f"the teacher must have a vocab.txt; received {teacher_directory} without one; put it there")
    tokenizer.config.require_default("a teacher cache", "distil with the teacher itself")
    targets, read = target_specs(teacher, method, stage, encoded, dtype)
    identity = teacher_cache_identity(method, stage, encoded, teacher_directory=teacher_directory, tokenizer=tokenizer)
    decisive = {name: value for name, value in identity.options.items() if name in read}
    return TeacherCachePlan(
        path=Path(output) / stage.name,
        identity=dataclasses.replace(identity, options=decisive),
        teacher_config=teacher.config,
        teacher_task=teacher.task,
        vocabulary=tokenizer.vocab_path,
        lowercase=tokenizer.lowercase,
        targets=targets,
        lengths=encoded.lengths,
        shard_bytes=shard_bytes,
    )


def _write(teacher: Model, method: Method, stage: Stage, encoded: EncodedExamples, writer: TeacherCacheWriter) -> None:
    """Writes the shards that are not written yet."""
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
    teacher: Model, method: Method, stage: Stage, encoded: EncodedExamples, dtype: str
) -> tuple[tuple[TargetSpec, ...], set[str]]:
    """The shapes of a stage's targets, and which of the stage's values and options decide them.

    `targets` is evaluated on batches of two sizes and two lengths: an axis that is as long as the batch both times is a
    token axis, one that stays the same is not. Names say nothing.

    Returns:
      The targets in the order of their names, and names as in `teacher_cache_identity`'s options.

    Raises:
      UserError: a target's first axis is not the batch's, an axis changes in another way, or its type is not a
        floating-point one; all such targets are listed.
    """
    stage, read = watched(stage)
    trials = [_targets(teacher, method, stage, _trial(encoded, *sizes)) for sizes in _TRIALS]
    problems, found = [], []
    for name in sorted(trials[0]):
        shapes = [tuple(trial[name].shape) for trial in trials]
        axes = list(zip(*shapes, strict=True)) if len(shapes[0]) == len(shapes[1]) else []
        sizes, lengths = zip(*_TRIALS, strict=True)
        if not axes or axes[0] != sizes:
            problems.append(f"the first axis of {name} must be the batch's; received shapes {shapes[0]}, {shapes[1]}")
        elif any(axis != lengths and axis[0] != axis[1] for axis in axes[1:]):
            problems.append(
                f"an axis of {name} must be as long as the batch or of one size; received {shapes[0]} for length "
                f"{lengths[0]} and {shapes[1]} for length {lengths[1]}"
            )
        elif not trials[0][name].dtype.is_floating:
            problems.append(f"{name} must hold floating-point numbers; received {trials[0][name].dtype.name}")
        else:
            shape = tuple(None if axis == lengths else int(axis[0]) for axis in axes[1:])
            found.append(TargetSpec(name=name, shape=shape, dtype=dtype))
    if problems or not found:
        reason = "; ".join(problems) or "there are none"
        raise UserError(f"the targets of {method.name}'s stage {stage.name} cannot be stored: {reason}")
    return tuple(found), read


def _targets(teacher: Model, method: Method, stage: Stage, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """What the live path gives, in float32 where the teacher computes in less."""
    features = teacher.features(inputs, stage.teacher_features, training=False)
    targets = method.targets(stage, features, inputs)
    return {name: tf.cast(value, tf.float32) if value.dtype.is_floating else value for name, value in targets.items()}


def _trial(encoded: EncodedExamples, size: int, length: int) -> dict[str, tf.Tensor]:
    return {
        "input_word_ids": tf.fill([size, length], encoded.pad_token_id),
        "input_mask": tf.ones([size, length], tf.int32),
        "input_type_ids": tf.zeros([size, length], tf.int32),
    }


def _plan(encoded: EncodedExamples, first: int, examples: int) -> list[np.ndarray]:
    """The teacher's batches of some consecutive examples: of one length each, with about the same number of tokens."""
    indices = np.arange(first, first + examples)
    widths = bucketed(encoded.lengths[indices], encoded.max_length)
    plan: list[np.ndarray] = []
    for width in np.unique(widths):
        rows, size = indices[widths == width], max(1, TOKENS_A_BATCH // int(width))
        plan += [rows[start : start + size] for start in range(0, len(rows), size)]
    return plan
