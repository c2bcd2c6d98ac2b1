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


def whole(arrays: dict[str, tf.Tensor], tokens: tf.Tensor) -> tf.Tensor:
    """Eq. 6 to 8 with all relations in memory, differentiated by TensorFlow."""

    def relation(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        heads = [tf.stack(tf.split(tf.cast(side, tf.float32), R, axis=-1), axis=1) for side in (left, right)]
        logits = tf.einsum("brqd,brkd->brqk", *heads) / heads[0].shape[-1] ** 0.5
        return tf.where(tokens[:, tf.newaxis, tf.newaxis, :] == 1, logits, -1e9)

    teacher = tf.nn.softmax(tf.stop_gradient(relation(arrays["teacher"], arrays["teacher_other"])))
    student = relation(arrays["student"], arrays["student_other"])
    divergences = tf.reduce_sum(teacher * (tf.math.log(teacher + 1e-30) - tf.nn.log_softmax(student)), -1)
    counted = tf.cast(tokens, tf.float32)[:, tf.newaxis, :]
    return tf.reduce_sum(divergences * counted) / (R * tf.reduce_sum(counted))


def chunked(arrays: dict[str, tf.Tensor], tokens: tf.Tensor, chunk_bytes: int = CHUNK_BYTES) -> tf.Tensor:
    return relation_transfer(
        arrays["teacher"],
        arrays["student"],
        tokens,
        R,
        arrays["teacher_other"],
        arrays["student_other"],
        chunk_bytes=chunk_bytes,
    )


def loss_and_gradients(loss: Any, *arguments: Any) -> tuple[float, dict[str, np.ndarray]]:
    arrays, *others = arguments
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        value = loss(arrays, *others)
    gradients = tape.gradient(value, arrays)
    return float(value), {name: None if gradient is None else gradient.numpy() for name, gradient in gradients.items()}


def assert_equal(actual: tuple[float, dict], expected: tuple[float, dict], tolerance: float = TOLERANCE) -> None:
    assert actual[0] == pytest.approx(expected[0], rel=tolerance)
    for name in ("student", "student_other"):
        largest = np.abs(expected[1][name]).max()
        np.testing.assert_allclose(actual[1][name], expected[1][name], rtol=0, atol=tolerance * largest)


# One matrix takes 6 arrays of 11 x 11 floats, 2,904 bytes: chunks of 1, 4 (the last has 2) and all 18 matrices.
@pytest.mark.parametrize("chunk_bytes", [1, 4 * 2_904, CHUNK_BYTES])
@pytest.mark.parametrize("traced", [False, True])
def test_chunks_equal_the_whole(chunk_bytes: int, traced: bool) -> None:
    arrays, tokens = vectors(), mask()
    run = tf.function(chunked, reduce_retracing=True) if traced else chunked
    actual = loss_and_gradients(run, arrays, tokens, chunk_bytes)
    assert_equal(actual, loss_and_gradients(whole, arrays, tokens))
    assert actual[1]["teacher"] is None and actual[1]["teacher_other"] is None


def test_unknown_sizes_equal_known_ones() -> None:
    arrays, tokens = vectors(), mask()
    shapes = {name: tf.TensorSpec([None, None, array.shape[-1]]) for name, array in arrays.items()}
    run = tf.function(
        lambda inputs, tokens: chunked(inputs, tokens, 4 * 2_904),
        input_signature=[shapes, tf.TensorSpec([None, None], tf.int32)],
    )
    assert_equal(loss_and_gradients(run, arrays, tokens), loss_and_gradients(whole, arrays, tokens))


def test_one_tensor_for_both_sides() -> None:
    arrays, tokens = vectors(), mask()
    teacher, student = arrays["teacher"], arrays["student"]
    with tf.GradientTape() as tape:
        tape.watch(student)
        loss = relation_transfer(teacher, student, tokens, R, chunk_bytes=1)
    expected = loss_and_gradients(
        whole, {**arrays, "teacher_other": teacher, "student_other": tf.identity(student)}, tokens
    )
    both = expected[1]["student"] + expected[1]["student_other"]
    assert float(loss) == pytest.approx(expected[0], rel=TOLERANCE)
    np.testing.assert_allclose(tape.gradient(loss, student), both, rtol=0, atol=TOLERANCE * np.abs(both).max())


def test_half_precision_keeps_its_type() -> None:
    arrays, tokens = vectors(dtype="bfloat16"), mask()
    actual = loss_and_gradients(chunked, arrays, tokens, 1)
    exact = {name: tf.cast(array, tf.float32) for name, array in arrays.items()}
    assert actual[1]["student"].dtype == arrays["student"].dtype.as_numpy_dtype
    actual = actual[0], {name: actual[1][name].astype(np.float32) for name in ("student", "student_other")}
    # The gradient is rounded once, to 8 bits.
    assert_equal(actual, loss_and_gradients(whole, exact, tokens), tolerance=2**-8)


def test_no_tokens_give_no_loss() -> None:
    value, gradients = loss_and_gradients(chunked, vectors(), tf.zeros([B, S], tf.int32))
    assert value == 0 and not gradients["student"].any() and not gradients["student_other"].any()


def test_no_array_holds_all_relations() -> None:
    """The graph of loss and gradient has no array with as many elements as the relations of the batch."""
    arrays, tokens = vectors(), mask()

    @tf.function
    def step(inputs: dict[str, tf.Tensor]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = chunked(inputs, tokens, 1)
        return tape.gradient(loss, inputs["student"])

    graph = step.get_concrete_function(arrays).graph
    functions = [graph, *(function.graph for function in graph._functions.values() if hasattr(function, "graph"))]
    sizes = [
        output.shape.num_elements()
        for graph in functions
        for operation in graph.get_operations()
        for output in operation.outputs
        if output.shape.num_elements() is not None
    ]
    assert len(sizes) > 50 and max(sizes) < R * B * S * S
