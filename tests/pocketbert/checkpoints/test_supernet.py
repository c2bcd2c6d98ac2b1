"""Weights that a candidate inherits from a supernet, beside slices and a layer computed in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tiny

import pocketbert as pb
from pocketbert.checkpoints.supernet import inherited_arrays, supernet_config
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.presets import preset

# 41 columns: a half is 20, a third 13, a quarter 10.
SUPERNET = supernet_config(tiny.EFFICIENTBERT.replace(hidden_dropout=0.0, attention_dropout=0.0))
TASK = TaskConfig(kind="classification", name="mine", labels=("no", "so", "yes"))


def candidate(*expressions: str, **changes: Any) -> EncoderConfig:
    return SUPERNET.replace(feedforward=FeedForwardConfig(expressions=expressions), **changes)


CANDIDATE = candidate(
    "tanh(linear2_2(gelu(linear2_2(x))))",
    "linear1_3(relu(mul(linear1_3(x),x)))",
    "linear4_4(gelu(linear4_4(max(x,tanh(x)))))",
)


def random_arrays(config: EncoderConfig, tasks: tuple[TaskConfig, ...] = (), seed: int = 5) -> dict[str, np.ndarray]:
    """Random numbers for biases and norms too, so that a mistaken part shows everywhere."""
    random = np.random.default_rng(seed)
    shapes = {path: value.shape for path, value in pb.from_preset(config, tasks).weights_by_path().items()}
    return {path: random.normal(size=shape).astype(np.float32) * 0.3 for path, shape in shapes.items()}


def model_of(config: EncoderConfig, arrays: dict[str, np.ndarray]) -> pb.Model:
    model = pb.from_preset(config)
    assert model.weights_by_path().keys() == arrays.keys()
    for path, variable in model.weights_by_path().items():
        variable.assign(arrays[path])
    return model


def layer_by_hand(
    x: np.ndarray, mask: np.ndarray, arrays: dict[str, np.ndarray], layer: int, expression: Any, stacks: int, width: int
) -> np.ndarray:
    """One layer in NumPy (paper, section 3.1): attention, then the first `stacks` networks of `width` columns each."""
    config = SUPERNET
    named = {path.removeprefix(f"encoder.layers.{layer}."): array.astype(np.float64) for path, array in arrays.items()}

    def normed(value: np.ndarray, name: str) -> np.ndarray:
        centred = value - value.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config.layer_norm_eps)
        return scaled * named[f"{name}.gamma"] + named[f"{name}.beta"]

    def heads(name: str) -> np.ndarray:
        value = x @ named[f"attention.{name}.kernel"] + named[f"attention.{name}.bias"]
        return value.reshape(*x.shape[:2], config.num_attention_heads, config.head_size).swapaxes(1, 2)

    logits = heads("query") @ heads("key").swapaxes(-1, -2) / math.sqrt(config.head_size)
    powers = np.exp(logits - logits.max(-1, keepdims=True)) * mask[:, None, None, :]
    context = (powers / powers.sum(-1, keepdims=True) @ heads("value")).swapaxes(1, 2).reshape(*x.shape[:2], -1)
    output = context @ named["attention.output.kernel"] + named["attention.output.bias"]
    inner = normed(output + x, "attention.norm")
    for stack in range(stacks):
        path = f"feed_forwards.{stack}"
        inner = normed(
            expression(
                inner,
                affine(named[f"{path}.intermediate.kernel"][:, :width], named[f"{path}.intermediate.bias"][:width]),
                affine(named[f"{path}.output.kernel"][:width], named[f"{path}.output.bias"]),
            )
            + inner,
            f"{path}.norm",
        )
    return inner


def affine(kernel: np.ndarray, bias: np.ndarray) -> Any:
    return lambda x: x @ kernel + bias


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def products(x: np.ndarray, first: Any, second: Any) -> np.ndarray:
    narrow = first(x)
    return second(np.maximum(narrow * x[..., : narrow.shape[-1]], 0))


BY_HAND = (
    (lambda x, first, second: np.tanh(second(gelu(first(x)))), 2, 20),
    (products, 1, 13),
    (lambda x, first, second: second(gelu(first(np.maximum(x, np.tanh(x))))), 4, 10),
)


def test_supernet_has_four_full_stacks() -> None:
    config = supernet_config(preset("efficientbert").config)
    assert config == preset("efficientbert_base").config.replace(feedforward=config.feedforward)
    assert config.feedforward is not None and set(config.feedforward.expressions) == {"linear4_1(gelu(linear4_1(x)))"}
    assert [config.feedforward_networks(layer) for layer in range(6)] == [(4, 540)] * 6
    assert supernet_config(tiny.BERT).feedforward_networks(2) == (4, 41)


def test_stage_three_keeps_the_operations() -> None:
    config = supernet_config(tiny.EFFICIENTBERT.replace(intermediate_size=29), keep_operations=True)
    assert config.feedforward is not None and config.feedforward.expressions == (
        "tanh(linear4_1(gelu(linear4_1(x))))",
        "linear4_1(relu(mul(linear4_1(x),x)))",
        "linear4_1(gelu(linear4_1(max(x,tanh(x)))))",
    )


def test_candidate_equals_slices_by_hand() -> None:
    arrays = random_arrays(SUPERNET)
    inputs = tiny.batch(SUPERNET)
    student = model_of(CANDIDATE, inherited_arrays(SUPERNET, arrays, CANDIDATE))
    hidden = [state.numpy() for state in student.features(inputs, ["hidden_states"])["hidden_states"]]
    reference = model_of(SUPERNET, arrays).features(inputs, {"hidden_states": (0,)})["hidden_states"][0]
    np.testing.assert_array_equal(hidden[0], reference)
    mask = inputs["input_mask"].numpy()
    for layer, (expression, stacks, width) in enumerate(BY_HAND):
        expected = layer_by_hand(hidden[layer], mask, arrays, layer, expression, stacks, width)
        # Sums of 30 products of order 1, rounded to float32, through up to five norms.
        np.testing.assert_allclose(hidden[layer + 1], expected, atol=2e-5, err_msg=str(layer))


def test_narrow_candidate_takes_leading_features() -> None:
    narrow = CANDIDATE.replace(hidden_size=20, head_size=4, intermediate_size=33)
    arrays = random_arrays(SUPERNET, (TASK,))
    inherited = inherited_arrays(SUPERNET, arrays, narrow, (TASK,))
    expected = {
        "embeddings.word.table": np.s_[:, :], "embeddings.position.table": np.s_[:, :20],
        "embeddings.projection.kernel": np.s_[:, :20], "embeddings.projection.bias": np.s_[:20],
        "layers.1.attention.query.kernel": np.s_[:20, :20], "layers.1.attention.output.bias": np.s_[:20],
        "layers.1.feed_forwards.0.intermediate.kernel": np.s_[:20, :11],
        "layers.1.feed_forwards.0.intermediate.bias": np.s_[:11],
        "layers.1.feed_forwards.0.output.kernel": np.s_[:11, :20],
        "layers.0.feed_forwards.1.output.kernel": np.s_[:16, :20],
        "layers.2.feed_forwards.3.norm.gamma": np.s_[:20], "pooler.kernel": np.s_[:20, :20],
    }  # fmt: skip
    for path, part in expected.items():
        np.testing.assert_array_equal(inherited[f"encoder.{path}"], arrays[f"encoder.{path}"][part], err_msg=path)
    np.testing.assert_array_equal(
        inherited["heads.classification.output.kernel"], arrays["heads.classification.output.kernel"][:20]
    )
    shapes = {path: value.shape for path, value in pb.from_preset(narrow, (TASK,)).weights_by_path().items()}
    assert {path: array.shape for path, array in inherited.items()} == shapes


def test_deep_candidate_repeats_each_layer() -> None:
    one, two, three = CANDIDATE.feedforward.expressions if CANDIDATE.feedforward else ()
    deep = candidate(one, one, two, two, three, three, num_layers=6)
    arrays = random_arrays(SUPERNET)
    inherited = inherited_arrays(SUPERNET, arrays, deep)
    for layer, source in enumerate((0, 0, 1, 1, 2, 2)):
        name = "attention.value.kernel"
        np.testing.assert_array_equal(
            inherited[f"encoder.layers.{layer}.{name}"], arrays[f"encoder.layers.{source}.{name}"]
        )
    assert inherited.keys() == pb.from_preset(deep).weights_by_path().keys()


def test_missing_heads_are_left_out() -> None:
    arrays = inherited_arrays(SUPERNET, random_arrays(SUPERNET), CANDIDATE, (TASK,))
    assert arrays and not any(path.startswith("heads.") for path in arrays)


def test_one_error_lists_all_problems() -> None:
    small = candidate("linear1_2(gelu(linear1_2(x)))", "linear2_2(gelu(linear2_2(x)))", "linear1_1(gelu(linear1_1(x)))")
    other = CANDIDATE.replace(vocab_size=90, embedding_size=11, hidden_size=35, head_size=7)
    with pytest.raises(UserError) as refusal:
        inherited_arrays(small, {}, other)
    for part in (
        "the student must be a part of its supernet: ",
        "vocab_size must equal the supernet's 97; received 90",
        "embedding_size must equal the supernet's 13; received 11",
        "hidden_size must be at most the supernet's 30; received 35",
        "head_size must be at most the supernet's 6; received 7",
        "layer 1: the supernet has 1 stacked feed-forward networks; received 2",
        "layer 3: the supernet has 1 stacked feed-forward networks; received 4",
    ):
        assert part in str(refusal.value)
    assert "layer 2" not in str(refusal.value)
    with pytest.raises(UserError, match="a multiple of the supernet's 3; received 2"):
        inherited_arrays(SUPERNET, {}, candidate(*["linear1_1(gelu(linear1_1(x)))"] * 2, num_layers=2))
    wide = small.feedforward.expressions[0], *["linear1_1(gelu(linear1_1(x)))"] * 2  # type: ignore[union-attr]
    with pytest.raises(UserError, match="layer 2: the supernet has feed-forward networks of width 20; received 41"):
        inherited_arrays(small, {}, candidate(*wide))
