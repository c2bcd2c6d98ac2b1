"""Relations in chunks: the same loss and gradients as the whole, from a bounded amount of memory.

Tolerance: the loss is a sum of at most R·B·S = 6·3·11 divergences of order 1, each with a few roundings of 6e-8; a
gradient is a sum over S keys and the features of a head. Both stay below 2e-5 of their largest value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pocketbert.distillation.losses import relation_transfer
from pocketbert.distillation.relations import CHUNK_BYTES

B, S, R = 3, 11, 6
TEACHER_WIDTH, STUDENT_WIDTH = 24, 30
TOLERANCE = 2e-5


def vectors(seed: int = 0, dtype: str = "float32") -> dict[str, tf.Tensor]:
    random = np.random.default_rng(seed)
    widths = {"teacher": TEACHER_WIDTH, "teacher_other": TEACHER_WIDTH}
    widths |= {"student": STUDENT_WIDTH, "student_other": STUDENT_WIDTH}
    return {name: tf.constant(random.normal(size=(B, S, width)), dtype) for name, width in widths.items()}


def mask() -> tf.Tensor:
    return tf.sequence_mask([S, 7, 2], S, tf.int32)


def whole(given: dict[str, tf.Tensor], tokens: tf.Tensor) -> tf.Tensor:
    """Eq. 6 to 8 with all relations in memory, differentiated by TensorFlow."""

    def relation(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        heads = [tf.stack(tf.split(tf.cast(each, tf.float32), R, axis=-1), axis=1) for each in (left, right)]
        logits = tf.einsum("brqd,brkd->brqk", *heads) / heads[0].shape[-1] ** 0.5
        return tf.where(tokens[:, tf.newaxis, tf.newaxis, :] == 1, logits, -1e9)

    teacher = tf.nn.softmax(tf.stop_gradient(relation(given["teacher"], given["teacher_other"])))
    student = relation(given["student"], given["student_other"])
    divergences = tf.reduce_sum(teacher * (tf.math.log(teacher + 1e-30) - tf.nn.log_softmax(student)), -1)
    counted = tf.cast(tokens, tf.float32)[:, tf.newaxis, :]
    return tf.reduce_sum(divergences * counted) / (R * tf.reduce_sum(counted))


def chunked(given: dict[str, tf.Tensor], tokens: tf.Tensor, chunk_bytes: int = CHUNK_BYTES) -> tf.Tensor:
    return relation_transfer(
        given["teacher"],
        given["student"],
        tokens,
        R,
        given["teacher_other"],
        given["student_other"],
        chunk_bytes=chunk_bytes,
    )


def loss_and_gradients(loss: Any, *arguments: Any) -> tuple[float, dict[str, np.ndarray]]:
    given, *others = arguments
    with tf.GradientTape() as tape:
        tape.watch(given)
        value = loss(given, *others)
    found = tape.gradient(value, given)
    return float(value), {name: None if each is None else each.numpy() for name, each in found.items()}


def assert_equal(found: tuple[float, dict], expected: tuple[float, dict], tolerance: float = TOLERANCE) -> None:
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    for name in ("student", "student_other"):
        largest = np.abs(expected[1][name]).max()
        np.testing.assert_allclose(found[1][name], expected[1][name], rtol=0, atol=tolerance * largest)


# One matrix takes 6 arrays of 11 x 11 floats, 2,904 bytes: chunks of 1, 4 (the last has 2) and all 18 matrices.
@pytest.mark.parametrize("chunk_bytes", [1, 4 * 2_904, CHUNK_BYTES])
@pytest.mark.parametrize("traced", [False, True])
def test_chunks_equal_the_whole(chunk_bytes: int, traced: bool) -> None:
    given, tokens = vectors(), mask()
    run = tf.function(chunked, reduce_retracing=True) if traced else chunked
    found = loss_and_gradients(run, given, tokens, chunk_bytes)
    assert_equal(found, loss_and_gradients(whole, given, tokens))
    assert found[1]["teacher"] is None and found[1]["teacher_other"] is None


def test_unknown_sizes_equal_known_ones() -> None:
    given, tokens = vectors(), mask()
    shapes = {name: tf.TensorSpec([None, None, each.shape[-1]]) for name, each in given.items()}
    run = tf.function(
        lambda given, tokens: chunked(given, tokens, 4 * 2_904),
        input_signature=[shapes, tf.TensorSpec([None, None], tf.int32)],
    )
    assert_equal(loss_and_gradients(run, given, tokens), loss_and_gradients(whole, given, tokens))


def test_one_tensor_for_both_sides() -> None:
    given, tokens = vectors(), mask()
    teacher, student = given["teacher"], given["student"]
    with tf.GradientTape() as tape:
        tape.watch(student)
        found = relation_transfer(teacher, student, tokens, R, chunk_bytes=1)
    expected = loss_and_gradients(
        whole, {**given, "teacher_other": teacher, "student_other": tf.identity(student)}, tokens
    )
    both = expected[1]["student"] + expected[1]["student_other"]
    assert float(found) == pytest.approx(expected[0], rel=TOLERANCE)
    np.testing.assert_allclose(tape.gradient(found, student), both, rtol=0, atol=TOLERANCE * np.abs(both).max())


def test_half_precision_keeps_its_type() -> None:
    given, tokens = vectors(dtype="bfloat16"), mask()
    found = loss_and_gradients(chunked, given, tokens, 1)
    exact = {name: tf.cast(each, tf.float32) for name, each in given.items()}
    assert found[1]["student"].dtype == given["student"].dtype.as_numpy_dtype
    found = found[0], {name: found[1][name].astype(np.float32) for name in ("student", "student_other")}
    # The gradient is rounded once, to 8 bits.
    assert_equal(found, loss_and_gradients(whole, exact, tokens), tolerance=2**-8)


def test_no_tokens_give_no_loss() -> None:
    value, gradients = loss_and_gradients(chunked, vectors(), tf.zeros([B, S], tf.int32))
    assert value == 0 and not gradients["student"].any() and not gradients["student_other"].any()


def test_no_array_holds_all_relations() -> None:
    """The graph of loss and gradient has no array with as many elements as the relations of the batch."""
    given, tokens = vectors(), mask()

    @tf.function
    def step(given: dict[str, tf.Tensor]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = chunked(given, tokens, 1)
        return tape.gradient(loss, given["student"])

    graph = step.get_concrete_function(given).graph
    functions = [graph, *(each.graph for each in graph._functions.values() if hasattr(each, "graph"))]
    sizes = [
        output.shape.num_elements()
        for each in functions
        for operation in each.get_operations()
        for output in operation.outputs
        if output.shape.num_elements() is not None
    ]
    assert len(sizes) > 50 and max(sizes) < R * B * S * S
