"""Compare a runtime's outputs with golden examples, the model, and each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from pocketbert.encoder import INPUT_NAMES
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.progress import track
from pocketbert.recipes import Bounds
from pocketbert.tasks.base import Task
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.checks import outputs as checks
from pocketbert_export.checks.outputs import Check, Outputs
from pocketbert_export.checks.validation_set import ValidationSet
from pocketbert_export.verification.validation_inputs import ValidationInputs
from pocketbert_runtime.answers.several import part_of
from pocketbert_runtime.bundles.length_buckets import LengthBucket

_ROWS_A_CALL = 32
_SEGMENTS = ("segments", "no segments")


def check_segments_are_read(validation_inputs: ValidationInputs, answers: Mapping[int, Outputs]) -> Check:
    """Checks without a model: the segment table's rows differ and some output changes with the segments."""
    outputs, others = (validation_inputs.answers(name, answers) for name in _SEGMENTS)
    pairs = zip(outputs, others, strict=True)
    passed = any(not np.array_equal(output[name], other[name]) for output, other in pairs for name in output)
    reason = "outputs change with the segment ids" if passed else "outputs ignore the segment ids"
    return Check(name="segments", passed=passed, reason=reason)


def batches_of(examples: Sequence[LengthBucket]) -> list[dict[str, np.ndarray]]:
    """Splits input rows into the float model's batches."""
    return [
        {name: array[first : first + _ROWS_A_CALL] for name, array in placed.inputs.items()}
        for placed in examples
        for first in range(0, len(placed.indices), _ROWS_A_CALL)
    ]


def reference_outputs(model: Model, validation_inputs: ValidationInputs) -> Mapping[str, Outputs]:
    """Returns the float model's outputs for the examples, for full rows, and for rows with and without segments."""
    # A graph lets TensorFlow fuse operators; one graph serves every shape.
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in INPUT_NAMES}

    @tf.function(input_signature=[specs])
    def answer(batch: Outputs) -> Outputs:
        with padding_after_texts(model):
            return model(batch, training=False)

    input_batches = {"examples": batches_of(validation_inputs.examples), "full": validation_inputs.inputs("full")}
    if model.config.type_vocab_size > 1:
        input_batches |= {name: [*validation_inputs.inputs(name)] for name in _SEGMENTS}
    by_name: dict[str, Outputs] = {}
    for name, batches in input_batches.items():
        told = track(batches, "float model's outputs", "batch") if name == "examples" else batches
        outputs = [{output: array.numpy() for output, array in answer(batch).items()} for batch in told]
        real = [checks.real_values(output, batch["input_mask"]) for output, batch in zip(outputs, batches, strict=True)]
        if name == "full":
            by_name |= {full_name(length): part for length, part in zip(validation_inputs.lengths, real, strict=True)}
        else:
            by_name[name] = checks.join(real)
    return by_name


def full_name(length: int) -> str:
    """Returns the key for full rows' outputs."""
    return f"full {length}"


def golden_answers(bundle: Bundle) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Concatenates the float model's and the file's golden outputs over the examples, without padding."""
    masks = [golden.inputs["input_mask"] for golden in bundle.goldens]
    kinds = ([golden.outputs for golden in bundle.goldens], [golden.exported_outputs for golden in bundle.goldens])
    first, second = (checks.join(list(map(checks.real_values, kind, masks))) for kind in kinds)
    return first, second


def judge(
    bundle: Bundle, validation_inputs: ValidationInputs, answers: Mapping[int, Outputs], bounds: Bounds
) -> list[Check]:
    """Runs the checks that need golden examples only."""
    task = get_task(bundle.task) if bundle.task else None
    goldens = _answers(validation_inputs, "goldens", answers)
    float_answers, own_answers = golden_answers(bundle)
    parts = validation_inputs.answers("lengths", answers), validation_inputs.masks("lengths")
    same_texts = dict(zip(bundle.lengths, map(checks.real_values, *parts), strict=True))
    return [
        checks.check_finite(goldens),
        *checks.check_difference(float_answers, goldens, bounds, "goldens", task),
        checks.check_own_answers(own_answers, goldens, bounds, task),
        checks.check_padding(
            _answers(validation_inputs, "padding", answers), _answers(validation_inputs, "noise", answers)
        ),
        # With a few short texts, differences between scores or tokens are too small to serve as a scale.
        checks.check_lengths(same_texts, bounds, task if task and task.centred_by_example else None),
    ]


def compare(
    task: Task | None,
    validation_inputs: ValidationInputs,
    expected: Mapping[str, Outputs],
    answers: Mapping[int, Outputs],
    examples: ValidationSet,
    bounds: Bounds,
    metric: str | None,
) -> list[Check]:
    """Runs the checks against the float model on real texts."""
    reference, received = expected["examples"], _answers(validation_inputs, "examples", answers)
    checks_made = checks.check_difference(reference, received, bounds, task=task)
    if any(check.measured is None for check in checks_made):
        return checks_made
    checks_made.append(_full_rows(task, validation_inputs, expected, answers, bounds))
    moves, moved = checks.deviations(reference, task), checks.deviations(received, task)
    checks_made.append(checks.check_response("sensitivity", "text", moves, moved, checks.centred(reference, task)))
    if "segments" in expected:
        with_segments = _answers(validation_inputs, "segments", answers)
        moves = _change(expected["segments"], expected["no segments"])
        without = _answers(validation_inputs, "no segments", answers)
        moved, rounding = _change(with_segments, without), _change(without, expected["no segments"])
        scales = checks.centred(expected["segments"], task)
        checks_made.append(checks.check_response("segments", "segment ids", moves, moved, scales, rounding))
    if task is not None and task.has_vectors:
        checks_made.append(checks.check_angles(reference, received, bounds))
    order = np.concatenate([placed.indices for placed in validation_inputs.examples])
    if task is not None:
        decided = [examples.decided(outputs, order) for outputs in (reference, received)]
        # A span's first output has the decisions; with several heads, each has its own.
        for name in task.output_names if task.parts else task.output_names[:1]:
            head = part_of(name) if task.parts else ""
            both = decided[0][name], decided[1][name]
            labels = checks.check_labels(task.of_output(name), *both, bounds, head)
            checks_made += [labels] if labels is not None else []
    if examples.labelled and metric is not None:
        expected_score, score = (examples.score(metric, outputs, order) for outputs in (reference, received))
        checks_made.append(checks.check_metric(metric, examples.count, expected_score, score, bounds))
    return checks_made


def _full_rows(
    task: Task | None,
    validation_inputs: ValidationInputs,
    expected: Mapping[str, Outputs],
    answers: Mapping[int, Outputs],
    bounds: Bounds,
) -> Check:
    """Compares full rows, length by length, on the examples' scale: all outputs from a few rows may be small."""
    examples = expected["examples"], _answers(validation_inputs, "examples", answers)
    parts = validation_inputs.answers("full", answers), validation_inputs.masks("full")
    rows = []
    for length, outputs, mask in zip(validation_inputs.lengths, *parts, strict=True):
        full = expected[full_name(length)], checks.real_values(outputs, mask)
        reference, received = (checks.join(both) for both in zip(examples, full, strict=True))
        largest, _ = checks.check_difference(reference, received, bounds, "full rows", task)
        reason = f"difference from the float model on full rows of {length} tokens, relative to the RMS of its outputs"
        rows.append(dataclasses.replace(largest, name="full rows", reason=reason))
    return max(rows, key=lambda check: math.inf if check.measured is None else check.measured)


def _answers(validation_inputs: ValidationInputs, name: str, answers: Mapping[int, Outputs]) -> dict[str, np.ndarray]:
    """The bundle's outputs for the rows called `name`, without padding."""
    parts = validation_inputs.answers(name, answers), validation_inputs.masks(name)
    return checks.join(list(map(checks.real_values, *parts)))


def _change(after: Outputs, before: Outputs) -> dict[str, np.ndarray]:
    return {name: after[name].astype(np.float64) - before[name] for name in after}
