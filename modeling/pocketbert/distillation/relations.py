"""Relations between a layer's vectors (MiniLMv2), compared in chunks that fit into a memory bound.

A batch's relations are B·R matrices [S, S], where B is the batch size, R the number of relation heads and S the length:
400 MB per array for 8 texts with 512 tokens and 48 heads. Ordinary differentiation keeps several such arrays per
relation until the backward pass. Here, a loop computes the loss for a few matrices at a time together with its gradient
with respect to the student's vectors, [B, S, H]. Only sums and gradients leave the loop.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf

from pocketbert.layers.attention import mask_bias

# A relation's vectors A_i and A_j, [B, S, H] each, heads concatenated.
Vectors: TypeAlias = "tuple[tf.Tensor, tf.Tensor]"

# Memory for a chunk's arrays: the fastest size on a CPU, and smaller than long batches' vectors.
CHUNK_BYTES = 1 << 26
# Arrays [S, S] per matrix that are alive at the same time, float32.
_LIVE_ARRAYS = 6


def divergence_sum(teacher: Vectors, student: Vectors, mask: tf.Tensor, heads: int, chunk_bytes: int) -> tf.Tensor:
    """Sums KL(R^T ‖ R^S) over relation heads and tokens (queries), R = softmax(A_i·A_jᵀ / √d) over real keys.

    Wang et al. 2021 (MiniLMv2), eq. 6 to 8. The sum is a float32 scalar in nats. The teacher gets no gradient.

    Args:
      teacher: A_i and A_j, [B, S, H], any float type.
      student: A_i and A_j, [B, S, H'], any float type.
      mask: int32 [B, S], 1 = token.
      heads: number of relation heads R; divides H and H'.
      chunk_bytes: memory for a chunk of relations, at least one matrix.
    """
    fixed = tuple(_split_heads(tf.stop_gradient(vectors), heads) for vectors in teacher)
    weights, bias = tf.cast(mask, tf.float32), mask_bias(mask, tf.float32)[:, 0]

    @tf.custom_gradient
    def total(*learned: tf.Tensor) -> Any:
        value, *gradients = _sum_and_gradients(
            fixed, tuple(_split_heads(vectors, heads) for vectors in learned), weights, bias, chunk_bytes
        )
        merged = []
        for gradient in gradients:
            # [heads·B, S, d] → [B, S, heads·d], the inverse of `_split_heads`.
            rows, length, size = tf.unstack(tf.shape(gradient))
            split = tf.reshape(gradient, [heads, rows // heads, length, size])
            merged.append(tf.reshape(tf.transpose(split, [1, 2, 0, 3]), [rows // heads, length, heads * size]))
        return value, lambda upstream: [
            tf.cast(upstream * gradient, vectors.dtype) for gradient, vectors in zip(merged, learned, strict=True)
        ]

    return total(*student)


def _sum_and_gradients(
    teacher: Vectors, student: Vectors, weights: tf.Tensor, bias: tf.Tensor, chunk_bytes: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the sum, and its gradients for the student's vectors, float32 [R·B, S, d'].

    Both models' vectors are [R·B, S, d] twice. `weights` [B, S] has 1 for queries that count; `bias` [B, 1, S] is added
    to the logits: 0 for tokens, far below any logit for padding.
    """
    count, length = tf.unstack(tf.shape(student[0])[:2])
    examples = tf.shape(weights)[0]
    matrix_bytes = tf.cast(length, tf.int64) ** 2 * 4 * _LIVE_ARRAYS
    size = tf.cast(tf.clip_by_value(chunk_bytes // matrix_bytes, 1, tf.cast(count, tf.int64)), tf.int32)

    def add_chunk(start: tf.Tensor, total: tf.Tensor, written: tuple[tf.TensorArray, ...]) -> Any:
        stop = tf.minimum(start + size, count)
        rows = tf.range(start, stop) % examples
        chunk_weights, chunk_bias = tf.gather(weights, rows), tf.gather(bias, rows)
        teacher_log, _ = _log_relations(teacher, start, stop, chunk_bias)
        student_log, (left, right) = _log_relations(student, start, stop, chunk_bias)
        # Both distributions are computed in one way, so that equal vectors give exactly 0, and exactly 0 as gradient.
        teacher_probs = tf.exp(teacher_log)
        divergences = tf.reduce_sum(teacher_probs * (teacher_log - student_log), -1)
        slopes = (tf.exp(student_log) - teacher_probs) * chunk_weights[:, :, tf.newaxis]
        gradients = (
            tf.matmul(slopes, right) * _scale(left),
            tf.matmul(slopes, left * _scale(left), transpose_a=True),
        )
        index = start // size
        written = tuple(array.write(index, value) for array, value in zip(written, gradients, strict=True))
        return stop, total + tf.reduce_sum(divergences * chunk_weights), written

    arrays = tuple(
        tf.TensorArray(
            tf.float32,
            size=-(-count // size),
            infer_shape=False,
            element_shape=[None, *vectors.shape[1:]],
        )
        for vectors in student
    )
    _, total, arrays = tf.while_loop(
        lambda start, *_: start < count, add_chunk, (0, tf.zeros([]), arrays), parallel_iterations=1
    )
    left, right = (array.concat() for array in arrays)
    return total, left, right


def _log_relations(vectors: Vectors, start: tf.Tensor, stop: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Vectors]:
    """Logarithms of some relations, float32 [rows, S, S], and the compared vectors, float32."""
    left, right = (tf.cast(vector[start:stop], tf.float32) for vector in vectors)
    return tf.nn.log_softmax(tf.matmul(left * _scale(left), right, transpose_b=True) + bias), (left, right)


def _scale(vectors: tf.Tensor) -> float:
    """1 / √d in eq. 7 and 8."""
    return float(vectors.shape[-1]) ** -0.5


def _split_heads(vectors: tf.Tensor, heads: int) -> tf.Tensor:
    """[B, S, H] → [heads·B, S, H / heads]; splits features first, because a head is a slice of features."""
    batch, length = tf.unstack(tf.shape(vectors)[:2])
    size = vectors.shape[-1] // heads
    split = tf.transpose(tf.reshape(vectors, [batch, length, heads, size]), [2, 0, 1, 3])
    return tf.ensure_shape(tf.reshape(split, [heads * batch, length, size]), [None, vectors.shape[1], size])
