"""Outputs against transformers' own, stored as goldens: every family, padded rows included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import pocketbert as pb

GOLDENS = Path(__file__).parents[1] / "goldens" / "huggingface"
CASES = sorted(path.name for path in GOLDENS.iterdir() if path.is_dir())
OUTPUT_OF = {"prediction_logits": ("prediction_logits", "logits")}


def tolerance(expected: np.ndarray) -> float:
    """2e-5 is what two correct float32 implementations reach on values of order 1 (goldens' README).

    Rounding errors scale with the values: without a LayerNorm, MobileBERT's reach thousands here.
    """
    return 2e-5 * max(1.0, float(np.abs(expected).max()))


def probability_tolerance(expected: np.ndarray) -> np.ndarray:
    """A logit's rounding error d moves a probability p by p (1 - p) d; d scales with the range of the row's logits.

    Args:
      expected: probabilities, [..., S].
    """
    logs = np.log(expected, where=expected > 0, out=np.zeros_like(expected))
    return 2e-5 * np.maximum(1.0, -logs.min(axis=-1, keepdims=True) * expected * (1 - expected))


def inputs_of(golden: np.lib.npyio.NpzFile) -> dict[str, tf.Tensor]:
    ids = golden["input_ids"]
    return {
        "input_word_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.constant(golden["attention_mask"], tf.int32),
        "input_type_ids": tf.constant(golden["token_type_ids"] if "token_type_ids" in golden else 0 * ids, tf.int32),
    }


def test_every_case_is_there() -> None:
    assert len(CASES) == 8


@pytest.mark.one_of_each(*(f"eager-{case}" for case in CASES), "function-mobilebert")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_outputs_equal_transformers(case: str, graph: bool) -> None:
    model = pb.from_pretrained(GOLDENS / case)
    golden = np.load(GOLDENS / case / "golden.npz")
    inputs = inputs_of(golden)
    request = ["hidden_states", "attention_probs"]
    features = tf.function(lambda: model.features(inputs, request))() if graph else model.features(inputs, request)
    tokens = golden["attention_mask"].astype(bool)
    assert len(features["hidden_states"]) == len(golden["hidden_states"])
    for state, expected in zip(features["hidden_states"], golden["hidden_states"], strict=True):
        np.testing.assert_allclose(state.numpy()[tokens], expected[tokens], rtol=0, atol=tolerance(expected[tokens]))
    for probs, expected in zip(features["attention_probs"], golden["attention_probs"], strict=True):
        # [B, N, S, S] → queries at tokens only.
        received, expected_rows = (array.transpose(0, 2, 1, 3)[tokens] for array in (probs.numpy(), expected))
        # With a LayerNorm, logits are of order 1.
        atol = probability_tolerance(expected_rows) if model.config.bottleneck else 2e-5
        assert np.all(np.abs(received - expected_rows) <= atol)


@pytest.mark.one_of_each("bert_classifier", "bert_gelu", "bert_span", "mobilebert", "roberta")
@pytest.mark.parametrize("case", CASES)
def test_heads_equal_transformers(case: str) -> None:
    model = pb.from_pretrained(GOLDENS / case)
    golden = np.load(GOLDENS / case / "golden.npz")
    tokens = golden["attention_mask"].astype(bool)
    outputs = model(inputs_of(golden))
    assert outputs
    for name, output in outputs.items():
        expected = next(golden[key] for key in OUTPUT_OF.get(name, (name,)) if key in golden)
        output = output.numpy()
        if expected.shape[:2] == tokens.shape:
            output, expected = output[tokens], expected[tokens]
        np.testing.assert_allclose(output, expected, rtol=0, atol=tolerance(expected), err_msg=name)


def test_last_state_reaches_the_softmax_without_padding() -> None:
    """Attention logits beyond ±1e4 occur without a LayerNorm; padding must stay out even then."""
    model = pb.from_pretrained(GOLDENS / "mobilebert")
    golden = np.load(GOLDENS / "mobilebert" / "golden.npz")
    features = model.features(inputs_of(golden), ["attention_logits", "attention_probs"])
    assert max(float(tf.reduce_max(tf.abs(logits))) for logits in features["attention_logits"]) > 1e4
    padding = golden["attention_mask"][:, None, None, :] == 0
    for probs in features["attention_probs"]:
        assert float(np.max(probs.numpy() * padding)) == 0.0


@pytest.mark.nightly
@pytest.mark.data
def test_pretrained_network_equals_transformers(minilm_directory: Path, goldens: Path) -> None:
    golden = np.load(goldens / "all_minilm_l6_v2.npz")
    model = pb.from_pretrained(minilm_directory, headless=True)
    features = model.features(inputs_of(golden), {"hidden_states": range(7), "attention_probs": (1,)})
    tokens = golden["attention_mask"].astype(bool)
    last = features["hidden_states"][-1].numpy()
    # Values reach about 10 here, through six layers of 384 features.
    atol = tolerance(golden["last_hidden_state"][tokens])
    np.testing.assert_allclose(last[tokens], golden["last_hidden_state"][tokens], rtol=0, atol=atol)
    for layer, states in enumerate(features["hidden_states"]):
        norms = np.linalg.norm(states.numpy(), axis=-1)[tokens]
        np.testing.assert_allclose(norms, golden["hidden_state_norms"][layer][tokens], rtol=2e-5)
    # The golden keeps the first eight queries.
    probs = features["attention_probs"][0].numpy()[:, :, :8].transpose(0, 2, 1, 3)
    expected = golden["attention_layer0"].transpose(0, 2, 1, 3)
    np.testing.assert_allclose(probs[tokens[:, :8]], expected[tokens[:, :8]], rtol=0, atol=2e-5)
    pooled = model(inputs_of(golden))["pooled_output"].numpy()
    np.testing.assert_allclose(pooled, golden["pooler_output"], rtol=0, atol=2e-5)


@pytest.mark.nightly
@pytest.mark.data
def test_pretrained_network_from_text(minilm_directory: Path, goldens: Path) -> None:
    """From sentences to mean-pooled vectors: tokenizer and network together."""
    golden = np.load(goldens / "all_minilm_l6_v2.npz")
    model = pb.from_pretrained(minilm_directory, headless=True)
    inputs = model.tokenizer(golden["sentences"].tolist(), max_length=64, pad_to=64)
    np.testing.assert_array_equal(inputs["input_word_ids"], golden["input_ids"])
    states = model(inputs)["sequence_output"].numpy()
    weights = golden["attention_mask"][:, :, None]
    mean = (states * weights).sum(axis=1) / weights.sum(axis=1)
    mean /= np.linalg.norm(mean, axis=-1, keepdims=True)
    expected = golden["mean_pooled"] / np.linalg.norm(golden["mean_pooled"], axis=-1, keepdims=True)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=2e-5)
