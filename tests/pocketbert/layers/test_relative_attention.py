"""Disentangled attention against a gather written in NumPy, transformers' buckets, and outputs from PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny

import pocketbert as pb
from pocketbert.configs import EncoderConfig, RelativeConfig
from pocketbert.layers.graph_form import GraphForm
from pocketbert.layers.relative_attention import by_distance, distance_rows
from pocketbert.model import Model

# 150 tokens are more than the farthest distance with a row of its own, and than a block.
CONFIG = tiny.DEBERTA.replace(
    num_layers=2, max_position_embeddings=150, relative=RelativeConfig(buckets=8, max_distance=60)
)
# Two float32 evaluations of the same sums in another order, on values of order 1.
ATOL = 2e-5


def network(config: EncoderConfig = CONFIG, graph: GraphForm = GraphForm()) -> Model:  # noqa: B008
    """A network with random norms and biases."""
    model = Model(config, (), graph=graph, seed=4)
    generator = np.random.default_rng(5)
    for path, variable in model.weights_by_path().items():
        if variable.shape.rank == 1:
            variable.assign(0.1 * generator.standard_normal(variable.shape) + path.endswith("gamma"))
    return model


def batch(length: int, seed: int = 3) -> dict[str, tf.Tensor]:
    generator = np.random.default_rng(seed)
    ids = generator.integers(2, CONFIG.vocab_size, [3, length])
    mask = np.arange(length) < np.array([[length], [max(1, length - 3)], [(length + 1) // 2]])
    return {"input_word_ids": tf.constant(ids, tf.int32), "input_mask": tf.constant(mask.astype(np.int32))}


def gathered(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[B, N, S, d] and [N, C, d] → [B, N, S, S], with row j - i + S - 1 for tokens i and j."""
    length = x.shape[2]
    products = np.einsum("bnid,ncd->bnic", x, rows)
    index = np.arange(length) - np.arange(length)[:, None] + length - 1
    return np.take_along_axis(products, np.broadcast_to(index, [*x.shape[:3], length]), axis=3)


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (256, 1024), (32, 128), (16, 512), (2, 9)])
def test_rows_are_transformers(buckets: int, longest: int) -> None:
    their = pytest.importorskip("transformers.models.deberta_v2.modeling_tf_deberta_v2")
    positions = their.build_relative_position(longest, longest, buckets, longest).numpy()[0]
    expected = np.clip(positions + buckets, 0, 2 * buckets - 1)
    rows = distance_rows(RelativeConfig(buckets=buckets, max_distance=longest), longest)
    distances = np.arange(longest)[:, None] - np.arange(longest)
    np.testing.assert_array_equal(rows[longest - distances], expected)


def test_farther_distances_share_the_last_row() -> None:
    rows = distance_rows(RelativeConfig(buckets=8, max_distance=20), 50)
    assert (rows[0], rows[50 - 20], rows[50], rows[-2], rows[-1]) == (15, 15, 8, 0, 0)
    assert rows[50 - 19] == 15 and (np.diff(rows) <= 0).all()


@pytest.mark.parametrize("length", [1, 2, 7, 64, 65, 130])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_shift_is_a_gather(length: int, is_known: bool) -> None:
    generator = np.random.default_rng(length)
    x, rows = (generator.standard_normal(shape).astype(np.float32) for shape in ([2, 3, length, 4], [3, 2 * length, 4]))
    size = length if is_known else None
    function = tf.function(
        by_distance, input_signature=[tf.TensorSpec([2, 3, size, 4]), tf.TensorSpec([1, 3, None, 4])]
    )
    np.testing.assert_allclose(function(x, rows[None]), gathered(x, rows), rtol=0, atol=ATOL)


@pytest.mark.parametrize("length", [1, 2, 7, 64, 67, 150])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_logits_follow_their_definition(length: int, is_known: bool) -> None:
    """Section 3.1, equation 4 of He et al. 2021, with each distance's row from a table."""
    model, inputs = network(), batch(length)
    names = ["queries", "keys", "values", "attention_logits", "attention_probs"]
    size = length if is_known else None
    signature = {name: tf.TensorSpec([None, size], tf.int32) for name in inputs}
    features = tf.function(lambda inputs: model.features(inputs, names), input_signature=[signature])(inputs)
    weights = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    table = weights["encoder.relative.embedding.table"]
    table = (table - table.mean(1, keepdims=True)) / np.sqrt(table.var(1, keepdims=True) + CONFIG.layer_norm_eps)
    table = table * weights["encoder.relative.norm.gamma"] + weights["encoder.relative.norm.beta"]
    distances = np.arange(length)[:, None] - np.arange(length)
    longest = CONFIG.max_position_embeddings
    rows = distance_rows(CONFIG.relative, longest)[longest - distances]  # type: ignore[arg-type]
    mask = inputs["input_mask"].numpy()[:, None, None, :]
    for layer in range(CONFIG.num_layers):
        q, k, _, logits, probs = (features[name][layer].numpy() for name in names)
        q, k = (x.reshape(3, length, 5, 6) for x in (q, k))
        of_query, of_key = (
            (table @ weights[f"{path}.kernel"] + weights[f"{path}.bias"]).reshape(-1, 5, 6)[rows]
            for path in (f"encoder.layers.{layer}.attention.{name}" for name in ("query", "key"))
        )
        expected = np.einsum("bind,bjnd->bnij", q, k) + np.einsum("bind,ijnd->bnij", q, of_key)
        expected = (expected + np.einsum("bjnd,ijnd->bnij", k, of_query)) / np.sqrt(3 * 6)
        scale = max(1, np.abs(expected).max())
        np.testing.assert_allclose(logits, expected, rtol=0, atol=ATOL * scale)
        exponentials = np.exp(expected - expected.max(-1, keepdims=True)) * mask
        expected = exponentials / exponentials.sum(-1, keepdims=True)
        np.testing.assert_allclose(probs, expected, rtol=0, atol=ATOL * scale)


@pytest.mark.parametrize("length", [1, 9, 66])
def test_first_token_alone_is_the_first_of_all(length: int) -> None:
    inputs = batch(length)
    expected = network()(inputs)["sequence_output"][:, :1]
    received = network(graph=GraphForm(first_token_only=True))(inputs)["sequence_output"]
    np.testing.assert_allclose(received, expected, rtol=0, atol=ATOL)


@pytest.mark.usefixtures("eager")
def test_chosen_positions_are_those_of_all() -> None:
    model, inputs, positions = network(), batch(11), np.array([[3, 0], [1, 7], [5, 5]], np.int32)
    expected = model(inputs)["sequence_output"].numpy()[np.arange(3)[:, None], positions]
    received = model.encoder.at_positions(inputs, tf.constant(positions))
    np.testing.assert_allclose(received, expected, rtol=0, atol=ATOL)


@pytest.mark.usefixtures("eager")
def test_recomputation_keeps_the_gradient_of_the_table() -> None:
    model, inputs = network(CONFIG.replace(hidden_dropout=0.0, attention_dropout=0.0)), batch(7)
    gradients = []
    for model.encoder.recomputes in (False, True):
        with tf.GradientTape() as tape:
            states = model.encoder(inputs, training=True)["sequence_output"]
            loss = tf.reduce_sum(states * tf.range(30, dtype=tf.float32))
        gradients.append(tape.gradient(loss, model.trainable_variables))
    gradients = [[tf.convert_to_tensor(gradient).numpy() for gradient in run] for run in gradients]
    for first, second in zip(*gradients, strict=True):
        scale = np.abs(first).max()
        np.testing.assert_allclose(second, first, rtol=0, atol=ATOL * scale)
    (table,) = [g for g, v in zip(gradients[1], model.trainable_variables, strict=True) if v.shape == [16, 30]]
    # Rows for the distances between -6 and 6, of which 5 and 6 share one.
    assert (np.abs(table).max(axis=1) > 0).tolist() == [False] * 3 + [True] * 11 + [False] * 2


@pytest.mark.usefixtures("eager")
def test_vectors_have_dropout_in_training() -> None:
    model, inputs = network(CONFIG.replace(attention_dropout=0.0)), batch(7)
    for layer in model.submodules:
        if type(layer).__name__ == "Dropout" and layer is not model.encoder.layers_[0].attention.relative_dropout:
            layer.generator = None
    logits = [model.features(inputs, {"attention_logits": (1,)}, training=mode) for mode in (True, False)]
    first, second = (features["attention_logits"][0].numpy() for features in logits)
    assert np.abs(first - second).max() > 0.01


@pytest.mark.data
@pytest.mark.usefixtures("eager")
def test_outputs_equal_transformers_in_pytorch(goldens: Path) -> None:
    """Three layers with 16 buckets; the file has the bare encoder's names."""
    model = pb.from_pretrained(goldens / "families/deberta")
    golden = np.load(goldens / "families/deberta/golden.npz")
    inputs = {
        "input_word_ids": tf.constant(golden["ids"], tf.int32),
        "input_mask": tf.constant(golden["mask"], tf.int32),
    }
    tokens = golden["mask"].astype(bool)
    assert model.config.relative == RelativeConfig(buckets=16, max_distance=512) and not tokens.all()
    np.testing.assert_allclose(model(inputs)["sequence_output"].numpy()[tokens], golden["y"][tokens], rtol=0, atol=2e-5)
