"""AdamW and LAMB, compared with Keras, tf-models-official and the papers' formulas in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.errors import UserError
from pocketbert.training.gradients import dense_and_clipped
from pocketbert.training.optimizers import LAMB, AdamW, NamedOptimizer

STEPS = 20
RATE = 1e-2
# Float32 has no 0.999: its 1 - 0.999 is off by 1.3e-5 of itself, which without bias correction shows in every update.
BETA_1, BETA_2 = float(np.float32(0.9)), float(np.float32(0.999))
# 17 is no multiple of a SIMD register, 16 is; the table has 11 rows.
SHAPES = {
    "bert.embeddings.word_embeddings.weight": (11, 5),
    "bert.encoder.layer.0.attention.self.query.weight": (4, 16),
    "bert.encoder.layer.0.attention.self.query.bias": (17,),
    "bert.encoder.layer.0.output.LayerNorm.weight": (7,),
}
TABLE = "bert.embeddings.word_embeddings.weight"
KERNEL = "bert.encoder.layer.0.attention.self.query.weight"
DECAYED = (TABLE, KERNEL)
# Each step rounds a weight below 0.25 twice (decay, update), each time by at most 2^-24 * 0.25 = 1.5e-8, and an update
# of about RATE by a few 2^-24 of itself, 3e-9: 20 steps add up to 20 * (3e-8 + 3e-9) = 6.6e-7 at worst.
TOLERANCE = 6.6e-7
# The baselines take 1 - 0.999 from Python's float64 and beta^t from float32, which changes the root of v, and so every
# update of about RATE, by 6.5e-6 of itself.
PEER_TOLERANCE = TOLERANCE + STEPS * RATE * 6.5e-6


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {name: random.uniform(-0.2, 0.2, shape).astype(np.float32) for name, shape in SHAPES.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(100 + step)
    return {name: random.normal(size=shape, scale=0.3).astype(np.float32) for name, shape in SHAPES.items()}


def table_slices(step: int) -> tf.IndexedSlices:
    """A table's gradient with rows named twice and rows not named at all."""
    values = np.random.default_rng(200 + step).normal(size=(6, 5)).astype(np.float32)
    return tf.IndexedSlices(tf.constant(values), tf.constant([2, 9, 2, 0, 2, 10]), tf.constant([11, 5]))


def run(
    optimizer: tf_keras.optimizers.Optimizer,
    gradient_of: Callable[[int], Mapping[str, object]] = gradients,
    steps: int = STEPS,
    graph: bool = True,
    variables: dict[str, tf.Variable] | None = None,
) -> dict[str, np.ndarray]:
    variables = variables or {name: tf.Variable(value) for name, value in weights().items()}
    if isinstance(optimizer, NamedOptimizer):
        optimizer.bind(variables)
    optimizer.build(list(variables.values()))

    def step(named: Mapping[str, object]) -> None:
        optimizer.apply_gradients([(named[name], variables[name]) for name in variables])

    compiled = tf.function(step) if graph else step
    for index in range(steps):
        compiled(
            {
                name: value if isinstance(value, tf.IndexedSlices) else tf.constant(value)
                for name, value in gradient_of(index).items()
            }
        )
    return {name: variable.numpy() for name, variable in variables.items()}


def assert_agrees_with_peer(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert set(actual) == set(expected) == set(SHAPES)
    start = weights()
    for name in SHAPES:
        np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=PEER_TOLERANCE, err_msg=name)
        # The comparison says something only about weights that moved far.
        assert np.abs(expected[name] - start[name]).max() > 0.01, name


def numpy_adamw(bias_correction: bool) -> dict[str, np.ndarray]:
    """Loshchilov & Hutter, algorithm 2, in float64."""
    result = {}
    for name, start in weights().items():
        w = start.astype(np.float64)
        m = v = np.zeros_like(w)
        for t in range(1, STEPS + 1):
            g = gradients(t - 1)[name].astype(np.float64)
            m, v = BETA_1 * m + (1 - BETA_1) * g, BETA_2 * v + (1 - BETA_2) * g * g
            step = m / (np.sqrt(v) + 1e-6)
            if bias_correction:
                step *= np.sqrt(1 - BETA_2**t) / (1 - BETA_1**t)
            w = w - RATE * (step + (0.1 * w if name in DECAYED else 0))
        result[name] = w
    return result


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_matches_the_paper(bias_correction: bool) -> None:
    actual = run(AdamW(RATE, weight_decay=0.1, bias_correction=bias_correction))
    expected = numpy_adamw(bias_correction)
    # Without correction the first updates are up to 3.2 * RATE and weights reach 0.7: thrice the roundings.
    for name in SHAPES:
        np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=3 * TOLERANCE, err_msg=name)


def test_adamw_matches_keras() -> None:
    keras = tf_keras.optimizers.AdamW(RATE, weight_decay=0.1, epsilon=1e-6, jit_compile=False)
    keras.exclude_from_weight_decay(var_names=["bare"])
    variables = {
        name: tf.Variable(value, name="plain" if name in DECAYED else "bare") for name, value in weights().items()
    }
    expected = run(keras, variables=variables)
    assert_agrees_with_peer(run(AdamW(RATE, weight_decay=0.1)), expected)
    assert_agrees_with_peer(run(AdamW(RATE, weight_decay=0.1), graph=False), expected)


def official_lamb() -> dict[str, np.ndarray]:
    from official.modeling.optimization.lamb import LAMB as OfficialLAMB

    optimizer = OfficialLAMB(RATE, weight_decay_rate=0.1, epsilon=1e-6, exclude_from_weight_decay=["bare"])
    variables = {
        name: tf.Variable(value, name="plain" if name in DECAYED else "bare") for name, value in weights().items()
    }
    for index in range(STEPS):
        optimizer.apply_gradients([(tf.constant(gradients(index)[name]), variables[name]) for name in variables])
    return {name: variable.numpy() for name, variable in variables.items()}


@pytest.mark.slow  # tf-models-official takes ten seconds to import.
def test_lamb_matches_official() -> None:
    assert_agrees_with_peer(run(LAMB(RATE, weight_decay=0.1)), official_lamb())


@pytest.mark.parametrize("bias_correction", [True, False])
def test_lamb_matches_the_paper(bias_correction: bool) -> None:
    expected = {}
    for name, start in weights().items():
        w = start.astype(np.float64)
        m = v = np.zeros_like(w)
        for t in range(1, STEPS + 1):
            g = gradients(t - 1)[name].astype(np.float64)
            m, v = BETA_1 * m + (1 - BETA_1) * g, BETA_2 * v + (1 - BETA_2) * g * g
            scale_m, scale_v = (1 - BETA_1**t, 1 - BETA_2**t) if bias_correction else (1, 1)
            u = (m / scale_m) / (np.sqrt(v / scale_v) + 1e-6) + (0.1 * w if name in DECAYED else 0)
            ratio = np.linalg.norm(w) / np.linalg.norm(u) if name in DECAYED else 1.0
            w = w - RATE * ratio * u
        expected[name] = w
    actual = run(LAMB(RATE, weight_decay=0.1, bias_correction=bias_correction))
    for name in SHAPES:
        np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=3 * TOLERANCE, err_msg=name)


def test_zero_norm_gives_trust_ratio_1() -> None:
    variables = {KERNEL: tf.Variable(tf.zeros([4, 16])), TABLE: tf.Variable(tf.ones([11, 5]))}
    ones, zeros = np.ones([4, 16], np.float32), np.zeros([11, 5], np.float32)
    after = run(LAMB(RATE, weight_decay=0), lambda _: {KERNEL: ones, TABLE: zeros}, steps=1, variables=variables)
    # A first corrected step is the gradient's sign: -RATE, to the rounding of 1 - beta and epsilon 1e-6.
    np.testing.assert_allclose(after[KERNEL], -RATE, rtol=1e-4)
    np.testing.assert_array_equal(after[TABLE], 1.0)


@pytest.mark.parametrize("optimizer_class", [AdamW, LAMB])
def test_duplicate_rows_sum_missing_rows_move(optimizer_class: type[AdamW] | type[LAMB]) -> None:
    def sparse(step: int) -> dict[str, object]:
        return {**gradients(step), TABLE: table_slices(step)}

    def dense(step: int) -> dict[str, object]:
        slices = table_slices(step)
        total = np.zeros([11, 5], np.float32)
        np.add.at(total, slices.indices.numpy(), slices.values.numpy())
        return {**gradients(step), TABLE: total}

    for clip_norm in (None, 0.7):
        actual = run(optimizer_class(RATE, clip_norm=clip_norm), sparse)
        expected = run(optimizer_class(RATE, clip_norm=clip_norm), dense)
        for name in SHAPES:
            # Two orders of adding three numbers, and of the norm's 150, differ by some 2^-23 of RATE an update.
            np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=TOLERANCE, err_msg=name)


def test_clipping_sums_duplicate_rows_first() -> None:
    # Rows 1 and 1 add up to (3, 4), norm 5; unsummed they would have norm sqrt(13).
    slices = tf.IndexedSlices(tf.constant([[3.0, 0.0], [0.0, 4.0]]), tf.constant([1, 1]), tf.constant([3, 2]))
    table, kernel = dense_and_clipped([slices, tf.constant([[12.0]])], 1.3)
    # sqrt(5^2 + 12^2) = 13 becomes 1.3: every gradient a tenth.
    np.testing.assert_allclose(table, np.array([[0, 0], [0.3, 0.4], [0, 0]]), rtol=1e-6)
    np.testing.assert_allclose(kernel, [[1.2]], rtol=1e-6)
    below = dense_and_clipped([slices, tf.constant([[12.0]])], 13.5)
    np.testing.assert_array_equal(below[1], [[12.0]])


@pytest.mark.parametrize("optimizer_class", [AdamW, LAMB])
def test_excluded_weights_do_not_decay(optimizer_class: type[AdamW] | type[LAMB]) -> None:
    def nothing(_: int) -> dict[str, object]:
        return {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}

    start, after = weights(), run(optimizer_class(RATE, weight_decay=0.5), nothing)
    moved = {name for name in SHAPES if not np.array_equal(start[name], after[name])}
    assert moved == set(DECAYED)
    if optimizer_class is AdamW:
        np.testing.assert_allclose(after[KERNEL], start[KERNEL] * (1 - RATE * 0.5) ** STEPS, rtol=1e-5)
    undecayed = run(optimizer_class(RATE, weight_decay=0.5, exclude_from_decay=["query"]), nothing)
    assert {name for name in SHAPES if not np.array_equal(start[name], undecayed[name])} == {
        name for name in SHAPES if "query" not in name
    }


@pytest.mark.parametrize("optimizer_class", [AdamW, LAMB])
@pytest.mark.parametrize("constant", [True, False])
def test_multiplier_0_keeps_the_bits(optimizer_class: type[AdamW] | type[LAMB], constant: bool) -> None:
    def multiplier(name: str, step: tf.Tensor) -> tf.Tensor | float:
        if name != KERNEL:
            return 1.0
        return 0.0 if constant else tf.cast(step >= 2, tf.float32)

    start = weights()
    start[KERNEL][0, :2] = -0.0, np.inf

    def bad(_: int) -> dict[str, object]:
        return {**gradients(0), KERNEL: np.full([4, 16], np.nan, np.float32)}

    for graph in (True, False):
        variables = {name: tf.Variable(value) for name, value in start.items()}
        after = run(optimizer_class(RATE, multiplier=multiplier), bad, 2, graph, variables)
        assert after[KERNEL].tobytes() == start[KERNEL].tobytes()
        assert not np.array_equal(after[TABLE], start[TABLE])


@pytest.mark.parametrize("optimizer_class", [AdamW, LAMB])
def test_multiplier_scales_update_and_decay(optimizer_class: type[AdamW] | type[LAMB]) -> None:
    def half_from_step_1(name: str, step: tf.Tensor) -> tf.Tensor:
        del name
        return tf.where(step >= 1, 0.5, 0.0)

    class Halved(tf_keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: tf.Tensor) -> tf.Tensor:
            return tf.where(step >= 1, RATE / 2, 0.0)

    actual = run(optimizer_class(RATE, weight_decay=0.1, multiplier=half_from_step_1))
    # A multiplier on update and decay is a multiplier on the learning rate; the moments run on in both.
    expected = run(optimizer_class(Halved(), weight_decay=0.1))
    for name in SHAPES:
        # At step 0 the moments are added in another order than the fused kernel's.
        np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=TOLERANCE, err_msg=name)


def test_constant_multiplier_acts_by_name() -> None:
    actual = run(AdamW(RATE, weight_decay=0.1, multiplier=lambda name, step: 0.25 if name == TABLE else 1.0))
    np.testing.assert_array_equal(actual[TABLE], run(AdamW(RATE / 4, weight_decay=0.1))[TABLE])
    np.testing.assert_array_equal(actual[KERNEL], run(AdamW(RATE, weight_decay=0.1))[KERNEL])


def test_step_is_bit_reproducible() -> None:
    def sparse(step: int) -> dict[str, object]:
        random = np.random.default_rng(step)
        ids = tf.constant(random.integers(0, 211, 4099), tf.int32)
        return {
            TABLE: tf.IndexedSlices(
                tf.constant(random.normal(size=(4099, 37)), tf.float32), ids, tf.constant([211, 37])
            )
        }

    results = []
    for _ in range(3):
        variables = {TABLE: tf.Variable(tf.ones([211, 37]))}
        results.append(run(AdamW(RATE, clip_norm=1.0), sparse, 5, variables=variables)[TABLE].tobytes())
    assert results[0] == results[1] == results[2]


def test_names_are_required_and_complete() -> None:
    variable = tf.Variable([1.0])
    with pytest.raises(ValueError, match="needs the names of the weights.*bind"):
        AdamW().apply_gradients([(tf.constant([1.0]), variable)])
    with pytest.raises(ValueError, match="not among the 1 named ones"):
        AdamW(named_variables={"other": tf.Variable([2.0])}).apply_gradients([(tf.constant([1.0]), variable)])


def test_bad_arguments_are_listed_together() -> None:
    with pytest.raises(UserError, match=r"weight_decay must lie in \[0, 1\); received -1.*clip_norm .* received 0"):
        AdamW(weight_decay=-1, clip_norm=0)


def test_named_state_restores_the_optimizer() -> None:
    variables = {name: tf.Variable(value) for name, value in weights().items()}
    optimizer = AdamW(RATE)
    run(optimizer, steps=3, variables=variables)
    state = {name: value.numpy() for name, value in optimizer.named_state().items()}
    assert set(state) == {"iterations", *(f"{slot}/{name}" for slot in "mv" for name in SHAPES)}
    middle = {name: variable.numpy() for name, variable in variables.items()}
    expected = run(optimizer, lambda step: gradients(step + 3), 4, variables=variables)

    restored_variables = {name: tf.Variable(value) for name, value in middle.items()}
    restored = AdamW(RATE, named_variables=restored_variables)
    restored.build(list(restored_variables.values()))
    for name, variable in restored.named_state().items():
        variable.assign(state[name])
    actual = run(restored, lambda step: gradients(step + 3), 4, variables=restored_variables)
    for name in SHAPES:
        np.testing.assert_array_equal(actual[name], expected[name])


def test_configuration_round_trip() -> None:
    optimizer = LAMB(0.5, weight_decay=0.2, clip_norm=3.0, exclude_from_trust_ratio=["x"])
    copy = LAMB.from_config(optimizer.get_config())
    assert copy.get_config() == optimizer.get_config()
    with pytest.raises(ValueError, match="multiplier has no configuration"):
        AdamW(multiplier=lambda name, step: 1.0).get_config()


@pytest.mark.parametrize("optimizer_class", [AdamW, LAMB])
def test_mixed_precision_weights(optimizer_class: type[AdamW] | type[LAMB]) -> None:
    layer = tf_keras.layers.Dense(3, dtype="mixed_bfloat16")
    layer.build([None, 4])
    names = {"dense.weight": layer.kernel, "dense.bias": layer.bias}
    optimizer = optimizer_class(RATE, named_variables=names, multiplier=lambda name, step: tf.ones([]))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(layer(tf.ones([2, 4])), tf.float32))
        optimizer.apply_gradients(zip(tape.gradient(loss, list(names.values())), names.values(), strict=True))

    before = layer.bias.numpy()
    step()
    assert layer.kernel.true_dtype == tf.float32
    np.testing.assert_allclose(before - layer.bias.numpy(), RATE, rtol=1e-4)
