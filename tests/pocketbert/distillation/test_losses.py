"""Losses, compared with the papers' equations in NumPy, and their invariance to padding, splitting and types.

Tolerance of the comparisons: a loss is a sum of at most 525 float32 terms (heads × pairs of tokens), of order 1. Each
term carries a few roundings of 6e-8, and summing them at most 525 × 6e-8 = 3e-5, relative to the sum of magnitudes.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import oracles.distillation as oracle
import pytest
import tensorflow as tf
from loss_cases import (
    CASES,
    MASKED,
    MASKS,
    PADDED,
    WRONG_INPUTS,
    WRONG_PARTS,
    B,
    Case,
    Inputs,
    S,
    student_names,
    teacher_names,
    terms,
)

from pocketbert.distillation import losses
from pocketbert.layers import loss_normalization

TOLERANCE = 4e-5
# What is wrong must stand out from rounding by far.
VISIBLE = 25 * TOLERANCE


def tensors(inputs: Inputs) -> Inputs:
    return {name: tf.constant(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()}


def run(case: Case, inputs: Inputs) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The terms, and the gradients of their sum by the student's inputs."""
    arguments = tensors(inputs)
    names = student_names(inputs)
    with tf.GradientTape() as tape:
        tape.watch([arguments[name] for name in names])
        values = terms(case.loss(**arguments))
        total = tf.add_n(list(values.values()))
    for term in values.values():
        assert term.dtype == tf.float32 and term.shape == []
    gradients = tape.gradient(total, {name: arguments[name] for name in names})
    return {name: float(term) for name, term in values.items()}, {name: x.numpy() for name, x in gradients.items()}


def assert_close(actual: dict[str, float], expected: dict[str, float], tolerance: float = TOLERANCE) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


def largest_difference(actual: dict[str, Any], expected: dict[str, float]) -> float:
    return max(abs(float(actual[name]) - expected[name]) for name in expected)


def with_content(case: Case, inputs: Inputs, seed: int) -> Inputs:
    """Other values, thirty times as large, wherever padding is a token, query or key."""
    changed = dict(inputs)
    for name, axes in case.token_axes.items():
        if inputs[name].dtype != np.float32:
            continue
        other = 45 * np.random.default_rng(seed).standard_normal(inputs[name].shape).astype(np.float32)
        changed[name] = np.where(real(inputs["mask"], inputs[name].ndim, axes), inputs[name], other)
    return changed


def real(mask: np.ndarray, rank: int, axes: tuple[int, ...]) -> np.ndarray:
    """Where all of the token axes are at tokens; broadcasts to an array of `rank`."""
    selected = np.ones([1] * rank, bool)
    for axis in axes:
        shape = [mask.shape[0]] + [1] * (rank - 1)
        shape[axis] = mask.shape[1]
        selected = selected & (mask.reshape(shape) == 1)
    return selected


def test_every_loss_has_a_case() -> None:
    public = {
        name
        for name, function in inspect.getmembers(losses, inspect.isfunction)
        if function.__module__ == losses.__name__ and not name.startswith("_")
    }
    assert public == {name.partition(" of ")[0] for name in CASES}
    assert len(public) == 11


@pytest.mark.parametrize("name", CASES)
def test_losses_match_the_papers(name: str) -> None:
    case = CASES[name]
    for description, mask in MASKS.items() if name in MASKED else [("", PADDED)]:
        inputs = case.inputs(mask)
        values, gradients = run(case, inputs)
        assert_close(values, case.oracle(inputs))

        # The slope along one direction: the oracle's by central differences, whose own error is about step² = 1e-8.
        generator, step = np.random.default_rng(11), 1e-4
        moved = {}
        slope = 0.0
        for student in student_names(inputs):
            direction = generator.standard_normal(inputs[student].shape)
            moved[student] = (inputs[student] + step * direction, inputs[student] - step * direction)
            slope += float(np.sum(direction * gradients[student]))
        up, down = (sum(case.oracle(inputs | {s: moved[s][side] for s in moved}).values()) for side in (0, 1))
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-4), description


@pytest.mark.parametrize(("name", "wrong", "change"), WRONG_INPUTS, ids=[f"{n}: {w}" for n, w, _ in WRONG_INPUTS])
def test_wrong_inputs_would_be_noticed(name: str, wrong: str, change: Any) -> None:
    del wrong
    case = CASES[name]
    inputs = case.inputs()
    values = terms(case.loss(**tensors(change(inputs))))
    assert largest_difference(values, case.oracle(inputs)) > VISIBLE


@pytest.mark.parametrize(
    ("name", "wrong", "part", "replacement"), WRONG_PARTS, ids=[f"{n}: {w}" for n, w, _, _ in WRONG_PARTS]
)
def test_wrong_parts_would_be_noticed(
    name: str, wrong: str, part: str, replacement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del wrong
    monkeypatch.setattr(f"pocketbert.distillation.{part}", replacement)
    case = CASES[name]
    inputs = case.inputs()
    values = terms(case.loss(**tensors(inputs)))
    assert largest_difference(values, case.oracle(inputs)) > VISIBLE


@pytest.mark.parametrize("name", MASKED)
def test_padding_content_changes_nothing(name: str) -> None:
    case = CASES[name]
    for mask in MASKS.values():
        inputs = case.inputs(mask)
        values, gradients = run(case, inputs)
        for seed in (1, 2):
            changed, changed_gradients = run(case, with_content(case, inputs, seed))
            assert changed == values
            for student, gradient in changed_gradients.items():
                np.testing.assert_array_equal(gradient, gradients[student])
                padding = ~np.broadcast_to(real(mask, gradient.ndim, case.token_axes[student]), gradient.shape)
                assert padding.any() and not gradient[padding].any()


@pytest.mark.parametrize("name", MASKED)
def test_padding_length_changes_nothing(name: str) -> None:
    case = CASES[name]
    inputs = case.inputs()
    longer = dict(inputs)
    for argument, axes in case.token_axes.items():
        widths = [(0, 2 if axis in axes else 0) for axis in range(inputs[argument].ndim)]
        longer[argument] = np.pad(inputs[argument], widths)
    longer = with_content(case, longer, seed=3)
    values, gradients = run(case, longer)
    expected, expected_gradients = run(case, inputs)
    assert_close(values, expected)
    for student, gradient in gradients.items():
        shorter = tuple(slice(S) if axis in case.token_axes[student] else slice(None) for axis in range(gradient.ndim))
        np.testing.assert_allclose(gradient[shorter], expected_gradients[student], atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_example_order_changes_nothing(name: str) -> None:
    case = CASES[name]
    inputs = case.inputs()
    order = [2, 0, 1]
    values, gradients = run(case, {key: x[order] if batched(x) else x for key, x in inputs.items()})
    expected, expected_gradients = run(case, inputs)
    assert_close(values, expected)
    for student, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected_gradients[student][order], atol=TOLERANCE)


# Similarities compare the texts of one micro-batch.
@pytest.mark.parametrize("name", [name for name in CASES if name != "embedding_similarities"])
def test_micro_batches_sum_to_the_batch(name: str) -> None:
    case = CASES[name]
    inputs = case.inputs()
    parts = [{key: x[b : b + 1] if batched(x) else x for key, x in inputs.items()} for b in range(B)]
    recordings = []
    for part in parts:
        with loss_normalization.count_weights() as totals:
            case.loss(**tensors(part))
        recordings.append(totals)
    totals = loss_normalization.shared_totals(recordings)
    results = []
    for part in parts:
        with loss_normalization.normalize_by(totals):
            results.append(run(case, part))
    values = {key: math.fsum(result[0][key] for result in results) for key in results[0][0]}
    expected, expected_gradients = run(case, inputs)
    assert_close(values, expected)
    for student, gradient in expected_gradients.items():
        joined = np.concatenate([result[1][student] for result in results])
        np.testing.assert_allclose(joined, gradient, atol=TOLERANCE)


def batched(value: Any) -> bool:
    return isinstance(value, np.ndarray) and len(value) == B


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", CASES)
def test_mixed_precision_computes_in_float32(name: str, dtype: tf.DType) -> None:
    """The same tolerance as in float32; one operation in a half type would be off by 1e-3 or more."""
    case = CASES[name]
    inputs = {key: x.astype(dtype.as_numpy_dtype) if is_float(x) else x for key, x in case.inputs().items()}
    values, gradients = run(case, inputs)
    assert_close(values, case.oracle({key: x.astype(np.float64) if is_float(x) else x for key, x in inputs.items()}))
    assert all(gradient.dtype == dtype.as_numpy_dtype for gradient in gradients.values())


def is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name in ("float32", "float16", "bfloat16")


@pytest.mark.parametrize("name", CASES)
def test_gradients_stay_finite(name: str) -> None:
    case = CASES[name]
    for mask in (MASKS["an example is all padding"], np.zeros_like(PADDED)):
        inputs = case.inputs(mask)
        for factor in (0.0, 1e-12, 1.0, 1e4):
            scaled = {key: x * np.float32(factor) if is_float(x) else x for key, x in inputs.items()}
            values, gradients = run(case, scaled)
            assert all(map(math.isfinite, values.values()))
            assert all(np.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize("name", MASKED)
def test_only_padding_gives_zero(name: str) -> None:
    case = CASES[name]
    values, gradients = run(case, case.inputs(np.zeros_like(PADDED)))
    assert not any(values.values())
    assert not any(gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("name", [name for name in CASES if name != "pretraining_distillation"])
def test_perfect_student_has_the_minimum(name: str) -> None:
    case = CASES[name]
    inputs = case.inputs()
    for student in student_names(inputs):
        teacher = inputs[student.replace("student", "teacher").replace("projected", "hidden")]
        inputs[student] = teacher * inputs["width_keep"] if "width_keep" in inputs else teacher
    values, gradients = run(case, inputs)
    if name == "soft_cross_entropy":
        rows = inputs["teacher_logits"] / inputs["temperature"]
        assert values["loss"] == pytest.approx(oracle.mean([oracle.cross_entropy(row, row) for row in rows]), 1e-6)
    else:
        assert not any(values.values())
    for gradient in gradients.values():
        # The difference of two probabilities, each rounded, times a vector of at most about 6.
        np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_teacher_gets_no_gradient(name: str) -> None:
    case = CASES[name]
    inputs = case.inputs()
    arguments = tensors(inputs)
    teachers = [arguments[teacher] for teacher in teacher_names(inputs)]
    with tf.GradientTape() as tape:
        tape.watch(teachers)
        total = tf.add_n(list(terms(case.loss(**arguments)).values()))
    assert teachers
    assert tape.gradient(total, teachers) == [None] * len(teachers)


@pytest.mark.parametrize("name", CASES)
def test_graphs_accept_unknown_lengths(name: str) -> None:
    """The value is the same, and what `recording` collects does not need the student: its run costs nothing."""
    case = CASES[name]
    inputs = case.inputs()
    arrays = {key: value for key, value in inputs.items() if isinstance(value, np.ndarray)}
    rest = {key: value for key, value in inputs.items() if key not in arrays}
    signature = {}
    for key, value in arrays.items():
        unknown = {0, *case.token_axes.get(key, ())} if batched(value) else set()
        shape = [None if axis in unknown else size for axis, size in enumerate(value.shape)]
        signature[key] = tf.TensorSpec(shape, value.dtype, name=key)

    @tf.function(input_signature=[signature])
    def graph(arguments: Inputs) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        with loss_normalization.count_weights() as totals:
            result = terms(case.loss(**arguments, **rest))
        return result, totals

    values, _ = graph({key: tf.constant(value) for key, value in arrays.items()})
    assert_close({key: float(value) for key, value in values.items()}, case.oracle(inputs))

    _, totals = graph.get_concrete_function().structured_outputs
    assert totals
    needed = {operation.name for operation in ancestors(totals) if operation.type == "Placeholder"}
    assert needed and not needed & set(student_names(inputs))


def ancestors(outputs: list[tf.Tensor]) -> set[tf.Operation]:
    todo, seen = [tensor.op for tensor in outputs], set()
    while todo:
        operation = todo.pop()
        if operation not in seen:
            seen.add(operation)
            todo += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return seen
