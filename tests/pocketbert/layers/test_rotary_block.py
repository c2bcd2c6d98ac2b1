"""ModernBERT's layers: golden outputs of PyTorch, an oracle in NumPy, windows, blocks, and parts of the output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny
from oracles import modernbert

import pocketbert as pb
from pocketbert.configs import EncoderConfig, RotaryConfig, TaskConfig
from pocketbert.layers.graph_form import GraphForm
from pocketbert.layers.local_blocks import LocalBlocks
from pocketbert.layers.rotary_attention import RotaryAttention
from pocketbert.model import Model

# Two float32 evaluations of the same sums, as in tests/goldens/huggingface/README.md.
ATOL = 2e-5
SPEC = tf.TensorSpec([None, None], tf.int32)


def inputs_of(ids: np.ndarray, mask: np.ndarray) -> dict[str, tf.Tensor]:
    return {"input_word_ids": tf.constant(ids, tf.int32), "input_mask": tf.constant(mask, tf.int32)}


def random_batch(length: int, lengths: tuple[int, ...]) -> dict[str, tf.Tensor]:
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)
    return inputs_of(np.random.default_rng(5).integers(2, 97, mask.shape) * mask, mask)


def shaken(config: EncoderConfig) -> Model:
    model = pb.from_preset(config, seed=4)
    generator = np.random.default_rng(7)
    for path, variable in model.weights_by_path().items():
        if path.endswith("gamma"):
            variable.assign(1 + 0.3 * generator.standard_normal(variable.shape))
    return model


def test_rotary_needs_what_its_block_has() -> None:
    rule = "norm does not go together with rotary; received 'no_norm'; .*pooler does not .* received 'tanh'"
    with pytest.raises(pb.UserError, match=rule):
        tiny.MODERNBERT.replace(norm="no_norm", pooler="tanh")
    with pytest.raises(pb.UserError, match="norm='rms' needs rotary; received none"):
        tiny.BERT.replace(norm="rms")


@pytest.mark.data
def test_golden_outputs_of_pytorch(goldens: Path) -> None:
    folder = goldens / "families/modernbert"
    model = pb.from_pretrained(folder)
    assert model.config.rotary == RotaryConfig(theta=160000.0, local_theta=10000.0, window=8, global_every=3)
    golden = np.load(folder / "golden.npz")
    inputs, real = inputs_of(golden["ids"], golden["mask"]), golden["mask"].astype(bool)
    states = model.features(inputs, ["hidden_states"])["hidden_states"]
    named = {**{f"h{layer}": state for layer, state in enumerate(states)}, "y": model(inputs)["sequence_output"]}
    assert {*named} == {*golden} - {"ids", "mask"}
    for name, state in named.items():
        expected = golden[name][real]
        np.testing.assert_allclose(
            np.asarray(state)[real], expected, rtol=0, atol=ATOL * max(1, np.abs(expected).max()), err_msg=name
        )


@pytest.mark.parametrize("graph_knows_length", [True, False])
@pytest.mark.parametrize(("length", "lengths"), [(5, (5, 3, 4)), (13, (13, 9, 4))])
def test_numpy_oracle(length: int, lengths: tuple[int, ...], graph_knows_length: bool) -> None:
    """At 13 tokens a window of 4 has seven blocks, and the last one is not full."""
    model = shaken(tiny.MODERNBERT)
    inputs = random_batch(length, lengths)
    ids, mask = (inputs[name].numpy() for name in ("input_word_ids", "input_mask"))
    weights = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    states, output = modernbert.hidden_states(model.config, weights, ids, mask)

    def call(ids: tf.Tensor, mask: tf.Tensor) -> list[tf.Tensor]:
        features = model.features({"input_word_ids": ids, "input_mask": mask}, ["hidden_states"])["hidden_states"]
        return [*features, model.encoder.pooled(features[-1])["sequence_output"]]

    function = call if graph_knows_length else tf.function(call, input_signature=[SPEC, SPEC], autograph=False)
    real = mask.astype(bool)
    for state, expected in zip(function(ids, mask), [*states, output], strict=True):
        scale = max(1, np.abs(expected[real]).max())
        np.testing.assert_allclose(np.asarray(state)[real], expected[real], rtol=0, atol=ATOL * scale)


@pytest.mark.parametrize("length", [32, 128, 192, 193, 512])
def test_local_attention_in_blocks_equals_the_whole_mask(length: int) -> None:
    """A window of 64 tokens on each side masks at 128 tokens already."""
    rotary = RotaryConfig(theta=160000.0, local_theta=10000.0, window=128, global_every=3)
    config = tiny.MODERNBERT.replace(rotary=rotary, max_position_embeddings=512)
    attention = RotaryAttention(config, 1, -1e9)
    generator = np.random.default_rng(length)
    queries, keys, values = (
        tf.constant(generator.standard_normal([2, length, config.attention_size]), tf.float32) for _ in range(3)
    )
    tokens = np.array([length, length - 9])
    bias = tf.constant(np.where(np.arange(length) < tokens[:, None], 0.0, -1e9)[:, None, None], tf.float32)
    expected, features = attention.attend(queries, keys, values, bias, ["attention_probs"])
    distance = np.abs(np.arange(length)[:, None] - np.arange(length))
    probs = features["attention_probs"].numpy()[0]
    assert not probs[:, distance > 64].any() and probs[:, distance <= 64].all()
    context, _ = attention.attend(queries, keys, values, bias)
    assert LocalBlocks(length, 128).pay == (length > 192)
    specs = [tf.TensorSpec([None, None, config.attention_size])] * 3 + [tf.TensorSpec([None, 1, 1, None])]
    unknown = tf.function(lambda *arguments: attention.attend(*arguments)[0], input_signature=specs, autograph=False)
    for other in (context, unknown(queries, keys, values, bias)):
        for row, count in enumerate(tokens):
            # A few roundings of values below 1.
            np.testing.assert_allclose(other[row, :count], expected[row, :count], rtol=0, atol=1e-6)


def test_long_global_attention_takes_some_queries_at_a_time() -> None:
    config = tiny.MODERNBERT.replace(max_position_embeddings=1100)
    attention = RotaryAttention(config, 0, -1e9)
    vectors = tf.constant(np.random.default_rng(1).standard_normal([3, 1, 1100, 30]), tf.float32)
    bias = tf.zeros([1, 1, 1, 1100])
    expected, _ = attention.attend(*tf.unstack(vectors), bias, ["attention_probs"])
    context, features = attention.attend(*tf.unstack(vectors), bias, ["keys"])
    assert features["keys"].shape == [1, 1100, 30]
    np.testing.assert_allclose(context, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_layers", [3, 4])
def test_parts_of_the_last_layer(num_layers: int) -> None:
    """The first token alone, and tokens at positions; the last layer is local or global."""
    config = tiny.MODERNBERT.replace(num_layers=num_layers)
    model = shaken(config)
    inputs = random_batch(13, (13, 9, 4))
    expected = model(inputs)["sequence_output"].numpy()
    positions = tf.constant([[12, 0], [3, 8], [2, 2]])
    rows = model.encoder.at_positions(inputs, positions)
    np.testing.assert_allclose(rows, np.take_along_axis(expected, positions.numpy()[..., None], axis=1), atol=ATOL)
    for fused in (False, True):
        form = GraphForm(first_token_only=True, fused_projections=fused)
        first = Model(config, graph=form)
        for path, variable in first.weights_by_path().items():
            variable.assign(model.weights_by_path()[path])
        np.testing.assert_allclose(first(inputs)["sequence_output"], expected[:, :1], atol=ATOL)


def test_gradients_of_blocks_are_those_of_the_whole_mask() -> None:
    model = shaken(tiny.MODERNBERT.replace(num_layers=2))
    inputs = random_batch(13, (13, 9, 4))

    def gradients(request: list[str]) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            states = model.features(inputs, request)["hidden_states"][-1]
            loss = tf.reduce_sum(tf.sin(states) * tf.cast(inputs["input_mask"], tf.float32)[..., None])
        variables = [value for path, value in model.weights_by_path().items() if ".layers.1.attention." in path]
        return [tf.convert_to_tensor(value).numpy() for value in tape.gradient(loss, variables)]

    whole, blocks = gradients(["hidden_states", "attention_probs"]), gradients(["hidden_states"])
    for one, other in zip(whole, blocks, strict=True):
        assert np.abs(one).max() > 1e-3
        np.testing.assert_allclose(other, one, rtol=0, atol=ATOL * max(1, np.abs(one).max()))


def test_mean_pooling_reads_the_tokens_mean() -> None:
    task = TaskConfig(kind="classification", labels=("no", "perhaps", "yes"), pooling="mean", dropout=0.0)
    model = pb.from_preset(tiny.MODERNBERT, task, seed=3)
    inputs = random_batch(13, (13, 9, 4))
    mask = inputs["input_mask"].numpy()[..., None]
    means = (model.encoder(inputs)["sequence_output"].numpy() * mask).sum(axis=1) / mask.sum(axis=1)
    weights = {path: value.numpy() for path, value in model.weights_by_path().items()}
    head = {path.removeprefix("heads.classification."): value for path, value in weights.items()}
    vectors = modernbert._norm(modernbert._gelu(means @ head["dense.kernel"]), head["norm.gamma"], model.config)
    expected = vectors @ head["output.kernel"] + head["output.bias"]
    np.testing.assert_allclose(model(inputs)["logits"], expected, rtol=0, atol=ATOL)
