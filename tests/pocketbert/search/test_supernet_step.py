"""Steps of a learning supernet, beside standalone candidates and AdamW in NumPy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import cheap_tensorflow
import numpy as np
import pytest
import tensorflow as tf
import tiny
from resident_memory import resident_kib

import pocketbert as pb
from pocketbert.checkpoints.supernet import inherited_arrays, supernet_config
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig, FeedForwardExpression, parse
from pocketbert.search.sliced_adamw import SlicedAdamW
from pocketbert.search.supernet_step import Shape, SupernetStep, draw_shapes, possible_shapes, sliced_axes
from pocketbert.training.optimizers import AdamW
from pocketbert.training.state import training_variables

# 29 columns: a half is 14, a third 9, a quarter 7. The second layer's product is as wide as its narrower operand.
BASE = tiny.EFFICIENTBERT.replace(
    intermediate_size=29,
    num_layers=2,
    feedforward=FeedForwardConfig(
        expressions=("tanh(linear1_1(gelu(linear1_1(x))))", "linear1_1(relu(mul(linear1_1(x),x)))")
    ),
)
SUPERNET = supernet_config(BASE, keep_operations=True)
TASKS = (
    TaskConfig(kind="classification", name="one", labels=("no", "yes")),
    TaskConfig(kind="classification", name="two", labels=("no", "so", "yes")),
)
REQUEST = {"hidden_states": (0, 2), "attention_logits": (1,), "logits": ()}
# Far above rounding errors of gradients that are zero in theory, such as those of key biases.
EPSILON, RATE, DECAY = 1e-4, 1e-2, 0.3
SEQUENCE: tuple[tuple[str, tuple[Shape, ...]], ...] = (
    ("one", ((2, 2), (4, 3))),
    ("two", ((3, 4), (1, 1))),
    ("one", ((1, 1), (2, 2))),
    ("one", ((4, 3), (3, 4))),
    ("two", ((2, 2), (4, 1))),
)


def losses(features: Any, batch: Any, targets: Any) -> tf.Tensor:
    del targets
    label = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], features["logits"][0])
    label = tf.reduce_mean(label)
    hidden = tf.add_n([tf.reduce_mean(tf.square(feature - 0.3)) for feature in features["hidden_states"]])
    attention = tf.reduce_mean(tf.square(features["attention_logits"][0] - 1.0))
    return tf.stack([label + hidden + attention, label, hidden, attention])


def shaped(shapes: Sequence[Shape]) -> EncoderConfig:
    assert SUPERNET.feedforward is not None
    trees = [parse(expression).tree for expression in SUPERNET.feedforward.expressions]
    texts = tuple(str(FeedForwardExpression(tree, *shape)) for tree, shape in zip(trees, shapes, strict=True))
    return SUPERNET.replace(feedforward=FeedForwardConfig(expressions=texts))


def make_supernet(seed: int = 3) -> pb.Model:
    model = pb.from_preset(SUPERNET, TASKS, seed=seed)
    random = np.random.default_rng(seed)
    for variable in model.weights_by_path().values():
        variable.assign(random.normal(size=variable.shape) * 0.3)
    return model


def make_step(model: pb.Model, clip_norm: float | None = 0.7, **options: Any) -> SupernetStep:
    optimizer = SlicedAdamW(
        RATE, sliced_axes=sliced_axes(model), weight_decay=DECAY, epsilon=EPSILON, clip_norm=clip_norm
    )
    return SupernetStep(
        model, optimizer, {task.name: losses for task in TASKS}, REQUEST, **{"dropout": False} | options
    )


def batch(seed: int) -> dict[str, tf.Tensor]:
    return {**tiny.batch(SUPERNET, seed=seed), "labels": tf.constant([0, 1, 1])}


def arrays(model: pb.Model) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in model.weights_by_path().items()}


def state_by_path(model: pb.Model, optimizer: Any, kind: str) -> dict[str, np.ndarray]:
    names = {variable.ref(): name for name, variable in model.named_variables().items()}
    state = optimizer.named_state()
    shared_names = {path: f"{kind}/{names[variable.ref()]}" for path, variable in model.weights_by_path().items()}
    return {path: state[name].numpy() for path, name in shared_names.items() if name in state}


def standalone(shapes: Sequence[Shape], weights: dict[str, np.ndarray]) -> pb.Model:
    model = pb.from_preset(shaped(shapes), TASKS)
    for path, array in inherited_arrays(SUPERNET, weights, shaped(shapes), TASKS).items():
        model.weights_by_path()[path].assign(array)
    return model


def gradients(model: pb.Model, head: str, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Losses and gradients by path, in one tape over the whole model."""
    inputs, variables = batch(seed), model.weights_by_path()
    with tf.GradientTape() as tape:
        features = dict(model.features(inputs, REQUEST, training=False))
        features["logits"] = [features["logits"][[task.name for task in TASKS].index(head)]]
        terms = losses(features, inputs, {})
        loss = terms[0]
    return terms.numpy(), dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


@pytest.fixture
def without_graphs() -> Iterator[None]:
    """Graphs of a few steps would take longer to trace than to run."""
    with cheap_tensorflow.eager():
        yield


def test_step_equals_the_standalone_candidate() -> None:
    shapes: tuple[Shape, ...] = ((2, 3), (3, 2))
    supernet = make_supernet()
    before = arrays(supernet)
    alone = standalone(shapes, before)
    step = make_step(supernet)
    step_losses = step(shapes, batch(5), head="two")

    optimizer = AdamW(RATE, weight_decay=DECAY, epsilon=EPSILON, clip_norm=0.7, named_variables=alone.named_variables())
    terms, slopes = gradients(alone, "two", seed=5)
    variables = alone.weights_by_path()
    optimizer.build(list(variables.values()))
    optimizer.apply_gradients([(slopes[path], variable) for path, variable in variables.items()])
    np.testing.assert_allclose(step_losses, terms, rtol=1e-5)
    after = arrays(supernet)
    compared = [(after, arrays(alone), before)]
    for kind in ("m", "v"):
        expected = state_by_path(alone, optimizer, kind)
        actual = state_by_path(supernet, step.optimizer, kind)
        compared.append((actual, expected, {path: np.zeros_like(array) for path, array in actual.items()}))
    for actual, expected, initial in compared:
        for path, array in actual.items():
            untouched = np.ones(array.shape, bool)
            if path in expected:
                part = tuple(map(slice, expected[path].shape))
                # Gradients of order 1 in float32, through a ratio of moments with epsilon 1e-4.
                np.testing.assert_allclose(array[part], expected[path], rtol=1e-4, atol=1e-5, err_msg=path)
                untouched[part] = False
            np.testing.assert_array_equal(array[untouched], initial[path][untouched], err_msg=path)
    changed = {path for path in after if not np.array_equal(after[path], before[path])}
    unreached = {
        path
        for path in after
        if re.search(r"heads\.one|layers\.0\.feed_forwards\.[23]|layers\.1\.feed_forwards\.3", path)
    }
    # Softmax ignores a constant, so the gradient of the last layer's key bias is zero.
    assert changed | {"encoder.layers.1.attention.key.bias"} == set(after) - unreached


def test_steps_equal_adamw_by_hand(without_graphs: None) -> None:
    supernet = make_supernet()
    step = make_step(supernet)
    weights = {path: array.astype(np.float64) for path, array in arrays(supernet).items()}
    moments = {path: (np.zeros_like(array), np.zeros_like(array)) for path, array in weights.items()}
    counts = {path: np.zeros(array.shape) for path, array in weights.items()}
    for number, (head, shapes) in enumerate(SEQUENCE):
        alone = standalone(shapes, weights)
        terms, slopes = gradients(alone, head, seed=number)
        np.testing.assert_allclose(step(shapes, batch(number), head=head), terms, rtol=2e-4)
        clipped = {path: tf.convert_to_tensor(slope).numpy() for path, slope in slopes.items() if slope is not None}
        norm = math.sqrt(sum(float((gradient.astype(np.float64) ** 2).sum()) for gradient in clipped.values()))
        assert norm > 0.7
        for path, slope in clipped.items():
            part, slope = tuple(map(slice, slope.shape)), slope * (0.7 / norm)
            (m, v), count = moments[path], counts[path]
            count[part] += 1
            m[part] = 0.9 * m[part] + 0.1 * slope
            v[part] = 0.999 * v[part] + 0.001 * slope**2
            corrected = np.sqrt(1 - 0.999 ** count[part]) / (1 - 0.9 ** count[part])
            if not re.search(r"bias|norm\.", path):
                weights[path][part] *= 1 - RATE * DECAY
            weights[path][part] -= RATE * corrected * m[part] / (np.sqrt(v[part]) + EPSILON)
    for path, array in arrays(supernet).items():
        # Differences of a step feed the next gradients.
        np.testing.assert_allclose(array, weights[path], rtol=1e-3, atol=2e-4, err_msg=path)
    aged = state_by_path(supernet, step.optimizer, "count")
    for path, count in aged.items():
        np.testing.assert_array_equal(np.broadcast_to(count, counts[path].shape), counts[path], err_msg=path)
    assert aged["heads.two.output.kernel"] == 2 and aged["encoder.layers.0.attention.query.kernel"] == 5
    assert np.unique(aged["encoder.layers.0.feed_forwards.0.intermediate.bias"]).tolist() == [1, 3, 4, 5]


# A run of a learning supernet resumes exactly in test_supernet_training.py.
@pytest.mark.nightly
def test_resumed_steps_are_bit_identical(without_graphs: None) -> None:
    finals = []
    for interrupted in (False, True):
        model = make_supernet()
        model.reset_dropout(9)
        step = make_step(model, dropout=True)
        for number in range(4):
            if interrupted and number == 2:
                saved = {name: variable.numpy() for name, variable in training_variables(model, step.optimizer).items()}
                model = make_supernet(seed=8)
                step = make_step(model, dropout=True)
                for name, variable in training_variables(model, step.optimizer).items():
                    variable.assign(saved[name])
            count = int(step.optimizer.iterations)
            step(draw_shapes(SUPERNET, 7, count), batch(number), head=TASKS[number % 2].name)
        finals.append({name: variable.numpy() for name, variable in training_variables(model, step.optimizer).items()})
    for name, array in finals[0].items():
        np.testing.assert_array_equal(array, finals[1][name], err_msg=name)


def test_new_combinations_trace_nothing() -> None:
    step = make_step(make_supernet(), clip_norm=None)
    for shapes in (((1, 2), (2, 3)), ((3, 1), (1, 4))):
        step(shapes, batch(1), head="one")
    graphs = step.num_graphs
    # Embedding, head and the other weights; a function and an update for each of four shapes.
    assert graphs == 3 + 8
    for shapes in (((1, 2), (1, 4)), ((3, 1), (2, 3))):
        step(shapes, batch(2), head="one")
    assert step.num_graphs == graphs
    assert all(graph.experimental_get_tracing_count() == 1 for graph in step._graphs.values())


def test_frozen_weights_keep_their_bits(without_graphs: None) -> None:
    model = make_supernet()
    before = arrays(model)
    step = make_step(model, trainable=lambda name: "layer.1" in name)
    step(((2, 2), (2, 2)), batch(1), head="one")
    changed = {path for path, array in arrays(model).items() if not np.array_equal(array, before[path])}
    assert changed and all(path.startswith("encoder.layers.1.") for path in changed)


def test_draws_are_uniform_and_repeatable() -> None:
    drawn = [draw_shapes(SUPERNET, 1, step) for step in range(1600)]
    assert drawn[:9] == [draw_shapes(SUPERNET, 1, step) for step in range(9)]
    assert drawn[:9] != [draw_shapes(SUPERNET, 2, step) for step in range(9)]
    for layer in range(2):
        _, counts = np.unique([4 * shapes[layer][0] + shapes[layer][1] for shapes in drawn], return_counts=True)
        # 100 of each expected, with a standard deviation below 10.
        assert len(counts) == 16 and 55 < counts.min() and counts.max() < 145


def test_only_matching_widths_are_drawn() -> None:
    # A product of 41 and 30 features has 30, but the second linear map would read 41.
    wide = SUPERNET.replace(intermediate_size=41, feedforward=BASE.feedforward and FeedForwardConfig(
        expressions=("linear4_1(gelu(linear4_1(x)))", "linear3_2(relu(mul(linear3_2(x),x)))")))  # fmt: skip
    one, two = possible_shapes(wide)
    assert len(one) == 16 and set(two) == {(stacks, divisor) for stacks in (1, 2, 3) for divisor in (2, 3, 4)}


def test_invalid_steps_are_refused() -> None:
    model = make_supernet()
    step = make_step(model)
    with pytest.raises(
        UserError, match=r"layer 2 must be one of 16 shapes of the supernet; received \(5, 1\); .*'three'"
    ):
        step(((1, 1), (5, 1)), batch(1), head="three")
    with pytest.raises(UserError, match="a candidate has 2 layers; received 1"):
        step(((1, 1),), batch(1), head="one")
    with pytest.raises(UserError, match="losses must be for heads of the supernet, one, two; received"):
        SupernetStep(model, step.optimizer, {"third": losses}, REQUEST)
    with pytest.raises(UserError, match="logits need a head"):
        SupernetStep(model, step.optimizer, {"": losses}, REQUEST)
    with pytest.raises(UserError, match="a supernet needs feed-forward expressions"):
        possible_shapes(tiny.BERT)


@pytest.mark.slow
def test_memory_stays_flat_over_candidates() -> None:
    step = make_step(make_supernet())
    for stacks in (1, 2, 3, 4):
        for divisor in (1, 2, 3, 4):
            for _ in range(2):
                step(((stacks, divisor),) * 2, batch(1), head="one")
    before = resident_kib()
    for number in range(200):
        step(draw_shapes(SUPERNET, 3, number), batch(1), head="one")
    # A trace per candidate would leave about 8 MiB each, 1.6 GiB in all.
    assert resident_kib() - before < 30 * 1024
