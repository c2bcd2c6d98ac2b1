"""The one mean of all losses, whose divisor a whole training step can share.

A batch may be split: over replicas (`tf.distribute`) and, on each of them, over micro-batches. A mean of the parts'
means is not the mean of the batch, since the parts have different numbers of tokens. So every part divides by the
*batch's* total weight, and the parts' results, and their gradients, are summed:

    sum over parts of [sum(values * weights) / total]  =  the mean of the whole batch

Replicas share by themselves: outside of the two contexts below, `masked_mean` sums its total over them. Micro-batches
are computed one after the other, so the totals must be known before the first of them. They depend on masks and labels
alone, not on any network. The step therefore first runs its loss over the whole batch only to record them:

    with loss_normalization.count_weights() as recorded:
        loss(features(batch, training=False), batch)
    totals = loss_normalization.shared_totals([recorded])
    for micro_batch in micro_batches:
        with loss_normalization.normalize_by(totals):
            terms = loss(features(micro_batch, training=True), micro_batch)

Inside a `tf.function` that run costs next to nothing: TensorFlow computes only what the totals need. What is stateful
is computed all the same, such as dropout's generators, hence `training=False`. Where no part of the program ever holds
the whole batch, each micro-batch is recorded and `shared_totals` gets all the lists.
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


# MirroredStrategy traces each replica in a thread of its own, and threads do not see each other's value.
_context: ContextVar[_Recording | _Sharing | None] = ContextVar("masked_mean", default=None)


def masked_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """sum(values * weights) / sum(weights), where the weights are first broadcast to the values' shape.

    Under several replicas, and inside `sharing`, the divisor is that of the whole batch, and the result is this
    part's share of the mean: the shares' sum is the mean.

    Args:
      values: any float type. At weight 0 they do not count, but must be finite.
      weights: float, int or bool, of a shape that broadcasts to that of `values`: an axis that is missing, or whose
        size is statically 1, counts every value along it ([B, S, 1] with [B, S, H]: H values a token). They carry no
        gradient.

    Returns:
      float32 scalar; 0, with a gradient of 0, if all weights are 0.

    Raises:
      ValueError: the weights do not broadcast to the values, or `sharing` was told of fewer means than there are.
    """
    values = tf.cast(values, tf.float32)
    weights = tf.stop_gradient(tf.cast(weights, tf.float32))
    axes = _broadcast_axes(values.shape, weights.shape)
    # Summed first over what the weights do not tell apart, so that no product of the values' size is made.
    sums = tf.reduce_sum(values, axes, keepdims=True)
    total = tf.reduce_sum(weights) * _product_of_sizes(values, axes)
    return tf.math.divide_no_nan(tf.reduce_sum(sums * weights), _divisor(total))


@contextlib.contextmanager
def count_weights() -> Iterator[list[tf.Tensor]]:
    """Collects the total weight of each `masked_mean` called inside, in the order of the calls.

    The means themselves are then of this part alone and not to be used.

    Yields:
      A list that fills up with float32 scalars.
    """
    totals: list[tf.Tensor] = []
    with _entered(_Recording(totals)):
        yield totals


def shared_totals(recordings: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
    """Sums what `recording` gave over replicas, and over micro-batches if it was one of them at a time.

    To be called in the replica's function itself: `tf.distribute` reduces neither inside a `tf.while_loop` nor inside
    a `tf.cond`. For the same reason `masked_mean` needs `sharing` there, if there are several replicas.

    Args:
      recordings: the whole batch's list, or one list a micro-batch, all of one length.

    Returns:
      One float32 scalar for each `masked_mean` of the loss.

    Raises:
      ValueError: the loss took another number of means in one micro-batch than in another.
    """
    counts = sorted({len(totals) for totals in recordings})
    if len(counts) != 1:
        raise ValueError(f"every micro-batch must take the same means; received {counts} of them")
    if counts == [0]:
        return []
    # One reduction for all of them, since each costs a message between machines.
    sums = tf.add_n([tf.stack(list(totals)) for totals in recordings])
    return tf.unstack(_sum_over_replicas(sums), num=counts[0])


@contextlib.contextmanager
def normalize_by(totals: Sequence[tf.Tensor]) -> Iterator[None]:
    """While active, the i-th `masked_mean` divides by `totals[i]`.

    Enter it once a micro-batch, in the replica's function.

    Args:
      totals: from `shared_totals`.

    Raises:
      ValueError: another number of means was taken than there are totals.
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
    """Divisor of the current mean: the part's total while it is recorded, otherwise the whole batch's."""
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
    """The axes of the values along which the weights are one and the same."""
    offset = values.rank - weights.rank
    axes = list(range(offset))
    for axis, size in enumerate(weights, start=offset):
        if axis < 0 or not (size == 1 or tf.TensorShape([size]).is_compatible_with([values[axis]])):
            raise ValueError(f"weights must broadcast to the values' shape {values}; received {weights}")
        if size == 1 and values[axis] != 1:
            axes.append(axis)
    return axes


def _product_of_sizes(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor | float:
    # A size that is known now does not need `x` at run time, which `recording` relies on to cost nothing.
    product: tf.Tensor | float = 1.0
    for axis in axes:
        size = x.shape[axis]
        product *= float(size) if size is not None else tf.cast(tf.shape(x)[axis], tf.float32)
    return product
