"""The shared mean: its definition, and that splitting a batch, over micro-batches or replicas, changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import forks
import numpy as np
import pytest
import tensorflow as tf

from pocketbert.layers import loss_normalization
from pocketbert.layers.loss_normalization import masked_mean

# Sums of at most 60 float32 numbers of order 1: 60 × 6e-8 relative to the magnitudes.
TOLERANCE = 4e-6

VALUES = np.random.default_rng(3).standard_normal((4, 5, 3)).astype(np.float32)
MASK = np.array([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], np.int32)
TOKENS = VALUES[MASK == 1]


def test_weighted_mean_by_hand() -> None:
    # (1·1 + 3·2) / (1 + 3)
    assert float(masked_mean(tf.constant([1.0, 2.0, 9.0]), tf.constant([1.0, 3.0, 0.0]))) == 1.75


@pytest.mark.parametrize("kind", [np.int32, np.float32, np.bool_])
def test_every_feature_of_a_token_counts(kind: type) -> None:
    mean = masked_mean(tf.constant(VALUES), tf.constant(MASK.astype(kind)[:, :, None]))
    assert mean.dtype == tf.float32 and mean.shape == []
    np.testing.assert_allclose(mean, TOKENS.mean(), rtol=TOLERANCE)


@pytest.mark.parametrize(
    "shape", [(4, 5, 3), (4, 5, 1), (4, 1, 1), (1, 5, 1), (1, 5, 3), (5, 3), (5, 1), (3,), (1,), (), (1, 1, 1)]
)
def test_weights_of_every_shape_that_broadcasts(shape: tuple[int, ...]) -> None:
    weights = np.random.default_rng(7).random(shape).astype(np.float32)
    expected = (VALUES * weights).sum(dtype=np.float64) / np.broadcast_to(weights, VALUES.shape).sum(dtype=np.float64)
    np.testing.assert_allclose(masked_mean(tf.constant(VALUES), tf.constant(weights)), expected, rtol=TOLERANCE)
    unknown = [None if size != 1 else 1 for size in shape]
    signature = [tf.TensorSpec([None] * 3, tf.float32), tf.TensorSpec(unknown, tf.float32)]
    graph = tf.function(masked_mean, input_signature=signature)
    np.testing.assert_allclose(graph(VALUES, weights), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("shape", [(4, 5, 2), (4, 4, 1), (2, 4, 5, 3), (4, 5)])
def test_weights_that_do_not_broadcast_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="weights must broadcast"):
        masked_mean(tf.constant(VALUES), tf.ones(shape))


def test_weights_larger_than_the_values_are_refused() -> None:
    """They would count the same value several times."""
    with pytest.raises(ValueError, match=r"shape \(4, 1\); received \(4, 5\)"):
        masked_mean(tf.ones([4, 1]), tf.ones([4, 5]))


def test_no_weight_at_all() -> None:
    values = tf.Variable(VALUES)
    with tf.GradientTape() as tape:
        mean = masked_mean(values, tf.zeros([4, 5, 1]))
    assert float(mean) == 0.0
    assert not tape.gradient(mean, values).numpy().any()


def test_float32_inside() -> None:
    """2,049 ones: float16 and bfloat16 cannot count them."""
    for dtype in (tf.float16, tf.bfloat16):
        assert float(masked_mean(tf.ones([2049], dtype), tf.ones([2049], dtype))) == 1.0
        assert float(masked_mean(tf.ones([2049], dtype), tf.concat([[1.0], tf.zeros([2048])], 0))) == 1.0


def test_weights_get_no_gradient() -> None:
    weights = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(weights)
        mean = masked_mean(tf.constant([1.0, 5.0]), weights)
    assert tape.gradient(mean, weights) is None


# One, four and no tokens; of the second mean: weights of each example.
PARTS = [(slice(0, 2), "two examples"), (slice(2, 3), "padding"), (slice(3, 4), "one example")]
EXAMPLE_WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0], np.float32)


def _loss(scale: tf.Variable, part: slice) -> tf.Tensor:
    """Two means with different weights, so that their order matters."""
    values = scale * tf.constant(VALUES[part])
    tokens = masked_mean(values**2, tf.constant(MASK[part])[:, :, None])
    return tokens + 3.0 * masked_mean(values[:, 0, 0], tf.constant(EXAMPLE_WEIGHTS[part]))


def _value_and_gradient(scale: tf.Variable, part: slice) -> tuple[np.ndarray, np.ndarray]:
    with tf.GradientTape() as tape:
        loss = _loss(scale, part)
    return loss.numpy(), tape.gradient(loss, scale).numpy()


def _shared(scale: tf.Variable) -> list[tf.Tensor]:
    recordings = []
    for part, _ in PARTS:
        with loss_normalization.count_weights() as totals:
            _loss(scale, part)
        recordings.append(totals)
    return loss_normalization.shared_totals(recordings)


def test_three_micro_batches_add_up_to_the_batch() -> None:
    scale = tf.Variable([0.7, -1.3, 0.4])
    expected = _value_and_gradient(scale, slice(0, 4))
    totals = _shared(scale)
    # Nine tokens of three features.
    assert [float(total) for total in totals] == [27.0, 3.5]
    parts = []
    for part, _ in PARTS:
        with loss_normalization.normalize_by(totals):
            parts.append(_value_and_gradient(scale, part))
    np.testing.assert_allclose(sum(value for value, _ in parts), expected[0], rtol=TOLERANCE)
    np.testing.assert_allclose(sum(gradient for _, gradient in parts), expected[1], rtol=TOLERANCE, atol=TOLERANCE)
    # And that is not what means of their own give.
    alone = np.mean([_value_and_gradient(scale, part)[0] for part, _ in PARTS])
    assert abs(alone - expected[0]) > 0.01


def test_contexts_end_where_they_end() -> None:
    scale = tf.Variable([0.7, -1.3, 0.4])
    expected = _loss(scale, slice(0, 4))
    with pytest.raises(KeyError), loss_normalization.normalize_by(_shared(scale)):
        raise KeyError
    with pytest.raises(KeyError), loss_normalization.count_weights() as totals:
        raise KeyError
    assert float(_loss(scale, slice(0, 4))) == float(expected)
    assert totals == []


def test_another_number_of_means_than_recorded_is_refused() -> None:
    scale = tf.Variable([0.7, -1.3, 0.4])
    totals = _shared(scale)
    with pytest.raises(ValueError, match="took 1 means when it was recorded, and takes more now"):
        with loss_normalization.normalize_by(totals[:1]):
            _loss(scale, slice(0, 4))
    with pytest.raises(ValueError, match="took 3 means when it was recorded and 2 now"):
        with loss_normalization.normalize_by([*totals, totals[0]]):
            _loss(scale, slice(0, 4))
    with pytest.raises(ValueError, match=r"the same means; received \[1, 2\]"):
        loss_normalization.shared_totals([totals, totals[:1]])


def test_no_means_at_all() -> None:
    assert loss_normalization.shared_totals([[], []]) == []


# Replicas have to be declared before TensorFlow starts, hence a process of its own.
REPLICAS = """
import json, sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from test_loss_normalization import PARTS, _loss, _shared
from pocketbert.layers import loss_normalization

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    scale = tf.Variable([0.7, -1.3, 0.4])

def taken(part):
    with tf.GradientTape() as tape:
        loss = _loss(scale, part)
    return loss, tape.gradient(loss, scale)

def mine(parts):
    return parts[int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))]

def replicas_only():
    # Two examples each: four tokens, and five.
    return taken(mine([slice(0, 2), slice(2, 4)]))

def replicas_of_micro_batches():
    # One example at a time.
    parts = mine([[slice(0, 1), slice(1, 2)], [slice(3, 4), slice(2, 3)]])
    recordings = []
    for part in parts:
        with loss_normalization.count_weights() as totals:
            _loss(scale, part)
        recordings.append(totals)
    totals = loss_normalization.shared_totals(recordings)
    results = []
    for part in parts:
        with loss_normalization.normalize_by(totals):
            results.append(taken(part))
    return tuple(tf.add_n(list(values)) for values in zip(*results))

for function in (replicas_only, replicas_of_micro_batches):
    results = tf.function(lambda: strategy.run(function))()
    sums = [strategy.reduce(tf.distribute.ReduceOp.SUM, x, axis=None).numpy().tolist() for x in results]
    each = [float(x) for x in strategy.experimental_local_results(results[0])]
    print(json.dumps({"loss": sums[0], "gradient": sums[1], "each": each}))
"""


def test_replicas_add_up_to_the_batch() -> None:
    scale = tf.Variable([0.7, -1.3, 0.4])
    loss, gradient = _value_and_gradient(scale, slice(0, 4))
    printed = forks.run_on_devices(REPLICAS, Path(__file__).parent)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(lines) == 2
    for record in lines:
        np.testing.assert_allclose(record["loss"], loss, rtol=TOLERANCE)
        np.testing.assert_allclose(record["gradient"], gradient, rtol=TOLERANCE, atol=TOLERANCE)
        assert len(record["each"]) == 2 and all(abs(value - loss) > 0.01 for value in record["each"])
