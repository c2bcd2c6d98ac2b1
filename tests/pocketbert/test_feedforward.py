"""Expressions of feed-forward networks: parser, rules, widths and values."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
from oracles.expressions import numpy_value
from tiny import BERT

from pocketbert.configs import EncoderConfig
from pocketbert.encoder import Encoder
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig, parse
from pocketbert.layers.block import FeedForward
from pocketbert.layers.core import weights_by_path
from pocketbert.presets import PRESETS


def _config(*expressions: str, mismatch: str = "truncate", **changes: object) -> EncoderConfig:
    feedforward = FeedForwardConfig(expressions=expressions, mismatch=mismatch)  # type: ignore[arg-type]
    return BERT.replace(num_layers=len(expressions), feedforward=feedforward, hidden_dropout=0.0, **changes)


_EXPRESSIONS = sorted(
    {
        expression
        for preset in PRESETS.values()
        if preset.config.feedforward
        for expression in preset.config.feedforward.expressions
    }
) + [
    "linear1_1(swish(add(linear1_1(x),x)))",
    "add(linear1_2(elu(linear1_2(mul(x,sigmoid(x))))),x)",
    "linear3_1(leaky_relu(max(tanh(linear3_1(x)),x)))",
]


@pytest.mark.parametrize("text", _EXPRESSIONS)
def test_layer_equals_table_1(text: str) -> None:
    # Truncated sums of the input and the inner features fit when the inner width is at most the outer one.
    config = _config(text, intermediate_size=24)
    _check_layer(config, text, "truncate")


@pytest.mark.parametrize("text", ["linear1_2(relu(mul(linear1_2(x),x)))", "linear1_1(relu(add(x,linear1_1(x))))"])
def test_narrow_operand_is_padded(text: str) -> None:
    _check_layer(_config(text, mismatch="pad", intermediate_size=74), text, "pad")


def test_padded_max_keeps_the_wider_rest() -> None:
    text = "linear1_2(relu(max(x,linear1_2(x))))"
    _check_layer(_config(text, mismatch="pad", intermediate_size=74), text, "pad")


@pytest.mark.parametrize("text", ["mul(linear1_1(x),linear1_1(tanh(x)))", "add(elu(linear1_1(relu(x))),linear1_1(x))"])
def test_left_linear_map_is_the_intermediate_one(text: str) -> None:
    _check_layer(_config(text, intermediate_size=30), text, "truncate")


def _check_layer(config: EncoderConfig, text: str, mismatch: str) -> None:
    layer = FeedForward(config, 0)
    random = np.random.default_rng(7)
    weights = weights_by_path(layer)
    values = {path: random.normal(0, 0.5, variable.shape) for path, variable in weights.items()}
    for path, variable in weights.items():
        variable.assign(values[path])
    x = random.normal(0, 1, [2, 3, config.hidden_size])
    pairs = [(values[f"{name}.kernel"], values[f"{name}.bias"]) for name in ("intermediate", "output")]
    inner = x + numpy_value(text, x, pairs, mismatch)
    centered = inner - inner.mean(-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + config.layer_norm_eps)
    expected = expected * values["norm.gamma"] + values["norm.beta"]
    np.testing.assert_allclose(layer(tf.constant(x, tf.float32)), expected, atol=2e-5)


@pytest.mark.parametrize("text", _EXPRESSIONS)
def test_text_is_canonical(text: str) -> None:
    assert str(parse(text.replace(",", " , ").replace("(", "( "))) == text


def test_authors_form_gives_the_same() -> None:
    assert parse("linear1_3(relu(mul(linear1_3(x,wb1),x)),wb2)") == parse("linear1_3(relu(mul(linear1_3(x),x)))")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "text ends at character 1"),
        ("relu(x", "')' expected; received 'end' at character 7"),
        ("linear1_1(gelu(linear1_1(x)))x", "end expected; received 'x' at character 30"),
        ("linear1_1(gelo(linear1_1(x)))", "unknown operation 'gelo' (did you mean 'gelu'?) at character 11"),
        ("linear1_1(gelu(linear1_1(x+x)))", "unexpected character '+' at character 27"),
        ("mul(x)", "',' expected; received ')' at character 6"),
        (
            "linear1_1(gelu(linear1_1(x,wb2)),wb1)",
            "this linear map has the weights wb1; received 'wb2' at character 28",
        ),
        ("tanh(gelu(linear1_1(x)))", "exactly 2 linear maps; received 1 (character 1)"),
        ("linear1_1(mul(linear1_1(x),linear1_1(tanh(x))))", "exactly 2 linear maps; received 3"),
        ("linear1_1(linear1_1(x))", "the height must lie between 3 and 7; received 2 (character 1)"),
        ("tanh(linear1_1(linear1_1(x)))", "a linear map must not read a linear map (character 6)"),
        ("linear1_1(relu(tanh(linear1_1(x))))", "an activation must not read an activation; received relu"),
        ("linear1_1(mul(linear1_1(x),add(x,x)))", "add needs two different operands (character 28)"),
        ("linear1_1(gelu(linear2_1(x)))", "both linear maps must have the same S and R (character 1)"),
        ("linear5_1(gelu(linear5_1(x)))", "with S and R from 1 to 4, received 5_1 (character 16)"),
        (
            "linear1_1(mul(gelu(linear1_1(mul(gelu(mul(x,tanh(x))),add(x,relu(x))))),mul(mul(x,relu(x)),max(x,elu(x)))))",
            "an expression has at most 20 primitives; received 25",
        ),
        (f"{'tanh(mul(x,' * 300}x", "at most 1000 characters; received 3301"),
    ],
)
def test_invalid_expressions_name_the_character(text: str, rule: str) -> None:
    with pytest.raises(UserError, match=re.escape(rule)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("linear1_2(relu(add(x,tanh(linear1_2(x)))))", ""),
        ("max(linear1_2(elu(linear1_2(x))),tanh(x))", ""),
        ("add(linear1_2(x),linear1_2(tanh(x)))", "a linear map for 18 features receives 30 (character 18)"),
        ("mul(tanh(linear1_2(x)),linear1_2(relu(x)))", "a linear map for 18 features receives 30 (character 24)"),
        ("linear1_1(relu(add(x,linear1_1(x))))", "a linear map for 37 features receives 30 (character 1)"),
    ],
)
def test_widths_must_match(text: str, rule: str) -> None:
    if not rule:
        _config(text, intermediate_size=36)
        return
    with pytest.raises(UserError, match=re.escape(rule)):
        _config(text, intermediate_size=36 if "_2" in text else 37)


def test_config_names_every_problem() -> None:
    with pytest.raises(UserError, match="1/4 of intermediate_size must be at least 1"):
        _config("linear1_4(gelu(linear1_4(x)))", intermediate_size=3)
    config = _config("linear1_2(gelu(linear1_2(x)))")
    with pytest.raises(UserError) as error:
        config.replace(num_feedforward_networks=2, num_layers=3, norm="no_norm")
    for part in ("one expression per layer, 3; received 1", "must be 1; received 2", "norm='layer_norm'"):
        assert part in str(error.value)


def test_each_stack_has_its_own_weights() -> None:
    config = _config("linear3_2(gelu(linear3_2(x)))", "linear1_1(gelu(linear1_1(x)))", intermediate_size=41)
    shapes = {path: tuple(variable.shape) for path, variable in weights_by_path(Encoder(config)).items()}
    kernels = {path.removeprefix("layers."): shape for path, shape in shapes.items() if "intermediate.kernel" in path}
    names = ["0.feed_forwards.0", "0.feed_forwards.1", "0.feed_forwards.2", "1.feed_forwards.0"]
    assert kernels == {f"{name}.intermediate.kernel": (30, 20 if name[0] == "0" else 41) for name in names}
