"""The mean in all losses. All parts of a training step share its divisor.

A batch can be split over replicas (`tf.distribute`) and, on each replica, over micro-batches. Averaging the parts'
means does not give the batch's mean, since the parts have different numbers of tokens. So each part divides by the
*batch's* total weight, and the parts' results and gradients are summed:

    sum over parts of [sum(values * weights) / total]  =  mean of the batch

Outside the two contexts below, `masked_mean` sums its total over replicas. Micro-batches run one after another, so
their totals must be known before the first one. They depend on masks and labels only, not on a network. So a step first
runs its loss over the whole batch to count the weights:

    with loss_normalization.count_weights() as recorded:
        loss(features(batch, training=False), batch)
    totals = loss_normalization.shared_totals([recorded])
    for micro_batch in micro_batches:
        with loss_normalization.normalize_by(totals):
            terms = loss(features(micro_batch, training=True), micro_batch)

This is cheap in a `tf.function`, because TensorFlow prunes everything that the totals do not need. It does not prune
stateful operations such as dropout's generators; hence `training=False`. If the whole batch is never in memory, count
each micro-batch and pass all lists to `shared_totals`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import tensorflow as tf


@dataclass
class _Recording:
    totals: list[tf.Tensor]


@dataclass
class _Sharing:
    totals: Sequence[tf.Tensor]
    calls: int = 0


# MirroredStrategy traces each replica in its own thread, and threads do not see each other's value.
_context: ContextVar[_Recording | _Sharing | None] = ContextVar("masked_mean", default=None)


def masked_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """sum(values * weights) / sum(weights), with the weights broadcast to the values' shape.

    With several replicas and inside `normalize_by`, it divides by the whole batch's weight. All parts' results then sum
    to the mean.

    Args:
      values: any float type. Values with weight 0 are ignored, but must be finite.
      weights: float, int or bool; must broadcast to the shape of `values`. A missing axis, or an axis of static size 1,
        counts all values along it ([B, S, 1] with [B, S, H]: H values per token). They get no gradient.
    Returns:
      float32 scalar; 0, with a gradient of 0, if all weights are 0.
    Raises:
      ValueError: the weights do not broadcast to the values, or the loss has more means than `normalize_by` has totals.
    """
    values = tf.cast(values, tf.float32)
    weights = tf.stop_gradient(tf.cast(weights, tf.float32))
    axes = _broadcast_axes(values.shape, weights.shape)
    # Summing over the broadcast axes first avoids a product as large as the values.
    sums = tf.reduce_sum(values, axes, keepdims=True)
    total = tf.reduce_sum(weights) * _product_of_sizes(values, axes)
    return normalized_sum(tf.reduce_sum(sums * weights), total)


def normalized_sum(values_sum: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """values_sum / weight: a `masked_mean` for a caller that has summed its weighted values.

    Args:
      values_sum: float32 scalar, this part's sum.
      weight: float32 scalar, this part's total weight, from masks or labels only.
    Returns:
      float32 scalar; 0, with a gradient of 0, if the weight is 0.
    Raises:
      ValueError: the loss has more means than `normalize_by` has totals.
    """
    return tf.math.divide_no_nan(values_sum, _divisor(weight))


@contextlib.contextmanager
def count_weights() -> Iterator[list[tf.Tensor]]:
    """Yields a list for the total weight, a float32 scalar, in each `masked_mean` inside the block, in call order.

    Do not use the means themselves: they divide by this part's weight only.
    """
    totals: list[tf.Tensor] = []
    with _entered(_Recording(totals)):
        yield totals


def shared_totals(recordings: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
    """Sums lists from `count_weights` over replicas and, if there are several, over micro-batches.

    Call it in the replica's function itself: `tf.distribute` cannot reduce inside a `tf.while_loop` or `tf.cond`. For
    the same reason, `masked_mean` needs `normalize_by` there with several replicas.

    Args:
      recordings: the whole batch's list, or one list per micro-batch, all equally long.
    Returns:
      One float32 scalar for each `masked_mean` in the loss.
    Raises:
      ValueError: micro-batches differ in the number of means.
    """
    counts = sorted({len(totals) for totals in recordings})
    if len(counts) != 1:
        raise ValueError(f"every micro-batch must take the same means; received {counts} of them")
    if counts == [0]:
        return []
    # One reduction for all totals, since each reduction costs a message between machines.
    sums = tf.add_n([tf.stack(list(totals)) for totals in recordings])
    return tf.unstack(_sum_over_replicas(sums), num=counts[0])


@contextlib.contextmanager
def normalize_by(totals: Sequence[tf.Tensor]) -> Iterator[None]:
    """Makes the i-th `masked_mean` inside the block divide by `totals[i]`.

    Enter it once per micro-batch, in the replica's function.

    Args:
      totals: from `shared_totals`.
    Raises:
      ValueError: there are not as many means as totals.
    """
    state = _Sharing(totals)
    with _entered(state):
        yield
    if state.calls != len(totals):
        raise ValueError(f"the loss took {len(totals)} means when it was recorded and {state.calls} now")


@contextlib.contextmanager
def _entered(state: _Recording | _Sharing) -> Iterator[None]:
    token = _context.set(state)
    try:
        yield
    finally:
        _context.reset(token)


def _divisor(total: tf.Tensor) -> tf.Tensor:
    """Returns the current mean's divisor: the part's total while counting, else the whole batch's."""
    state = _context.get()
    if state is None:
        return _sum_over_replicas(total)
    if isinstance(state, _Recording):
        state.totals.append(total)
        return total
    if state.calls == len(state.totals):
        raise ValueError(f"the loss took {len(state.totals)} means when it was recorded, and takes more now")
    state.calls += 1
    return state.totals[state.calls - 1]


def _sum_over_replicas(x: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def _broadcast_axes(values: tf.TensorShape, weights: tf.TensorShape) -> list[int]:
    """Returns the values' axes along which the weights are broadcast."""
    offset = values.rank - weights.rank
    axes = list(range(offset))
    for axis, size in enumerate(weights, start=offset):
        if axis < 0 or not (size == 1 or tf.TensorShape([size]).is_compatible_with([values[axis]])):
            raise ValueError(f"weights must broadcast to the values' shape {values}; received {weights}")
        if size == 1 and values[axis] != 1:
            axes.append(axis)
    return axes


def _product_of_sizes(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor | float:
    # A static size does not need `x` at run time, which keeps `count_weights` cheap.
    product: tf.Tensor | float = 1.0
    for axis in axes:
        size = x.shape[axis]
        product *= float(size) if size is not None else tf.cast(tf.shape(x)[axis], tf.float32)
    return product
