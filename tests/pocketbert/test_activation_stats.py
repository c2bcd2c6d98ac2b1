from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny

import pocketbert as pb
from pocketbert.activation_stats import ActivationRange, activation_range
from pocketbert.configs import TaskConfig
from pocketbert.training.distribution import precision_policy
from pocketbert.training.optimizers import AdamW


@pytest.mark.one_of_each("bert")
@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_maxima_are_those_of_all_batches(family: str) -> None:
    config = tiny.FAMILIES[family]
    model = pb.from_preset(config, seed=4)
    # Of two lengths; the second has the larger value in some layers only.
    batches = [tiny.batch(config), tiny.batch(config, length=11, seed=8)]
    ranges = activation_range(model, [{**batch, "masked_lm_positions": 0} for batch in batches])
    for name, values in (("hidden_states", ranges.hidden_states), ("attention_logits", ranges.attention_logits)):
        maxima = [[np.abs(layer.numpy()).max() for layer in model.features(batch, [name])[name]] for batch in batches]
        assert len(values) == config.num_layers + (name == "hidden_states")
        assert maxima[0] != maxima[1]
        # A graph sums in another order than single operations do.
        np.testing.assert_allclose(values, np.max(maxima, axis=0), rtol=1e-5)


def scaled(factor: float) -> ActivationRange:
    """Of a model whose second layer's output is `factor` times what it was."""
    model = pb.from_preset(tiny.MOBILEBERT, seed=4)
    gamma = model.weights_by_path()["encoder.layers.1.bottleneck.output_norm.gamma"]
    gamma.assign(gamma * factor)
    return activation_range(model, [tiny.batch(tiny.MOBILEBERT)])


@pytest.fixture(scope="module")
def plain() -> ActivationRange:
    return scaled(1.0)


@pytest.mark.usefixtures("eager")
def test_an_overflow_in_float16_names_the_layer(plain: ActivationRange) -> None:
    assert plain.float16_warnings() == [] and max(plain.hidden_states) < 100
    first, *_ = warnings = scaled(80_000 / plain.hidden_states[2]).float16_warnings()
    assert first == "layer 2's hidden state: 80,000, which overflows in float16 (its largest is 65,504)"
    # The third layer reads it; what comes before is as it was.
    assert all(warning.startswith("layer 3's") for warning in warnings[1:])


@pytest.mark.usefixtures("eager")
def test_what_comes_near_is_told_apart(plain: ActivationRange) -> None:
    near = scaled(8_300 / plain.hidden_states[2]).float16_warnings()
    assert near[0] == "layer 2's hidden state: 8,300, within a factor of 8 of float16's largest, 65,504"
    far = scaled(8_000 / plain.hidden_states[2]).float16_warnings()
    assert not any("layer 2" in warning for warning in far)


def test_every_part_is_named() -> None:
    maxima = ActivationRange(hidden_states=(70_000.0, 1.0, 2.0), attention_logits=(3.0, 90_000.0))
    assert [warning.partition(":")[0] for warning in maxima.float16_warnings()] == [
        "the embedding's output",
        "layer 2's attention logits",
    ]


@pytest.mark.usefixtures("eager")
def test_what_is_no_number_is_told_and_still_json() -> None:
    scaled_range = scaled(math.nan)
    assert math.isfinite(scaled_range.hidden_states[1]) and scaled_range.hidden_states[2] == math.inf
    assert scaled_range.float16_warnings()[0] == "layer 2's hidden state: not finite, in float32 already"
    assert json.loads(json.dumps(scaled_range.to_json(), allow_nan=False))["hidden_states"][2:] == [None, None]


def test_no_batches_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one batch; received none"):
        activation_range(pb.from_preset(tiny.BERT), [])


@pytest.mark.usefixtures("eager")
def test_bfloat16_training_stays_finite_with_float32_weights() -> None:
    inputs: dict[str, Any] = tiny.batch(tiny.MOBILEBERT) | {
        "masked_lm_positions": tf.constant([[1, 5], [0, 3], [2, 4]])
    }
    labels = tf.constant([[7, 11], [13, -1], [17, 19]])
    with precision_policy("bfloat16"):
        model = pb.from_preset(tiny.MOBILEBERT.replace(num_layers=1), task=[TaskConfig(kind="masked_lm")], seed=3)
        model.compile(AdamW(1e-2))
        step = tf.function(lambda: model.train_step((inputs, labels))["loss"])
        losses = [float(step()) for _ in range(6)]
        ranges = activation_range(model, [inputs])
        assert model.features(inputs, ["hidden_states"])["hidden_states"][1].dtype == tf.bfloat16
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
    assert all(np.isfinite(variable.numpy()).all() for variable in model.trainable_variables)
    assert all(map(math.isfinite, ranges.hidden_states + ranges.attention_logits))
