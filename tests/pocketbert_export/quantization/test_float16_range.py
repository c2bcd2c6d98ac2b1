"""The gate measures every activation of a `float16` file and refuses files that overflow in float16."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.activation_stats import FLOAT16_MAX
from pocketbert.configs import TaskConfig
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization.calibration import outputs_of
from pocketbert_export.quantization.float16_range import fit_float16, float16_range
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.length_buckets import bucket_texts
from pocketbert_export.verification.default_texts import DEFAULT_TEXTS

LENGTH = 19
TEXTS = DEFAULT_TEXTS[:8]
# Large enough for some matrices to become float16.
CONFIG = networks.mobilebert_config(hidden_size=36, intermediate_size=70)
# Weights of the network → factor.
Factors = dict[str, float]
QUERY, HEAD = "encoder.layers.1.attention.query.kernel", "heads.multi_label.output.kernel"
VALUE, CONTEXT = "encoder.layers.1.attention.value.kernel", "encoder.layers.1.attention.output.kernel"
LAST_GAMMA = "encoder.layers.1.bottleneck.output_norm.gamma"


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's bound for float16 is for trained networks; these leave it on a few of the built-in texts."""
    monkeypatch.setattr("pocketbert_export.verification.default_texts.DEFAULT_TEXTS", TEXTS)


def saved(folder: Path, factors: Factors) -> Model:
    """A MobileBERT with some weights multiplied, saved as `model`."""
    tokenizer = WordPieceTokenizer(networks.vocabulary(folder))
    # The gate compares these labels' logits as they are: centred over the classes, those of a random NoNorm network
    # err by more than float16's bound.
    task = TaskConfig(kind="multi_label", name="mood", labels=networks.SENTIMENT.labels)
    model = networks.network(CONFIG, tasks=[task], tokenizer=tokenizer)
    for path, factor in factors.items():
        weight = model.weights_by_path()[path]
        weight.assign(weight * factor)
    model.save_pretrained(folder / "model")
    return model


def export(folder: Path, recipe: str = "float16", *flags: str) -> int:
    arguments = [f"--model={folder / 'model'}", f"--recipe={recipe}", f"--lengths={LENGTH}", *flags]
    return cli.main(["export", *arguments, f"--output={folder / 'bundle'}"])


def verification(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "bundle" / "verification.json").read_text(encoding="utf-8"))


def test_maxima_are_those_of_the_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(tmp_path, {})
    assert export(tmp_path) == 0
    ranges = verification(tmp_path)["activation_range"]
    assert ranges["texts"] == len(TEXTS)
    printed = json.loads(capsys.readouterr().out)["activation_range"]
    assert printed == {name: value for name, value in ranges.items() if name != "maxima"}
    assert ranges["largest"]["value"] == max(ranges["maxima"].values())

    assert model.tokenizer is not None
    inputs = model.tokenizer(list(TEXTS), max_length=LENGTH, pad_to=LENGTH)
    inputs = {name: np.asarray(rows) for name, rows in inputs.items()}
    optimized = optimize_graph(model, GraphOptimizations().for_recipe(get_recipe("float16")))
    with padding_after_texts(optimized):
        features = optimized.features(inputs, ["hidden_states", "attention_logits", "logits"])
    expected = {name: [float(np.abs(tensor).max()) for tensor in tensors] for name, tensors in features.items()}
    logits = [value for name, value in ranges["maxima"].items() if "attention logits" in name]
    (output,) = [value for name, value in ranges["maxima"].items() if name.startswith("output ")]
    sums = [value for name, value in ranges["maxima"].items() if "ADD" in name]
    # Weights are rounded to 11 bits, 5e-4 each, in some twenty layers.
    np.testing.assert_allclose(logits, expected["attention_logits"], rtol=1e-2)
    np.testing.assert_allclose([output], expected["logits"], rtol=1e-2)
    for value in expected["hidden_states"]:
        assert np.min(np.abs(np.divide(sums, value) - 1)) < 1e-2
    # Intermediate outputs of two feed-forward networks in each layer, among others.
    assert sum("feed_forward" in name and "FULLY_CONNECTED" in name for name in ranges["maxima"]) == 2 * 2 * 2


@pytest.mark.one_of_each("attention logits")
@pytest.mark.parametrize(
    ("factors", "name"),
    [
        ({QUERY: 300_000.0}, "layer 2's attention logits block_"),
        ({HEAD: 300_000.0}, "output "),
        ({VALUE: 30_000.0, CONTEXT: 1 / 30_000}, "layer 2's "),
    ],
    ids=["attention logits", "output logits", "values"],
)
def test_overflow_is_refused_by_name(
    factors: Factors, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Activations are of order 1 to 10.
    saved(tmp_path, factors)
    assert export(tmp_path) == 1
    stderr = capsys.readouterr().err
    (failure,) = [part for part in stderr.split("; ") if "float16 range: " in part]
    assert f"largest activation on {len(TEXTS)} texts: {name}" in failure
    assert "--recipe=float32 is for CPUs" in stderr
    assert not (tmp_path / "bundle").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("fold", [True, False])
def test_overflowing_hidden_state_is_scaled(fold: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in https://github.com/huggingface/transformers/issues/11327."""
    # Without folding, the last hidden state is 300,000 times as large. With folding, all of them are.
    model = saved(tmp_path, {LAST_GAMMA: 300_000.0, HEAD: 1 / 300_000})
    assert model.tokenizer is not None
    inputs = model.tokenizer(list(TEXTS), max_length=LENGTH, pad_to=LENGTH)
    features = model.features({name: np.asarray(rows) for name, rows in inputs.items()}, {"hidden_states": (2,)})
    assert np.abs(features["hidden_states"][0]).max() > FLOAT16_MAX
    assert export(tmp_path, "float16", "--fold-no-norm" if fold else "--nofold-no-norm") == 0
    assert "channels with activations up to" in capsys.readouterr().err
    ranges = verification(tmp_path)["activation_range"]
    assert ranges["float16"]["warnings"] == []
    # The largest channels of the stream end in the upper half of the range below the margin.
    assert FLOAT16_MAX / 8 / 2 < ranges["largest"]["value"] <= FLOAT16_MAX / 8
    # float32 in another form: a step of rounding in each of some twenty layers, and the weights' 2^-12.
    bundle = Bundle.open(tmp_path / "bundle")
    for golden in bundle.goldens:
        for name, expected in golden.outputs.items():
            assert networks.relative(expected, bundle.run(golden.inputs)[name]) < 3e-3


def with_large_squares(folder: Path) -> Model:
    """A BERT in which a feature of the feed-forward output is 3,000 times as large as others, its square 9e6 times."""
    tokenizer = WordPieceTokenizer(networks.vocabulary(folder))
    task = TaskConfig(kind="multi_label", name="mood", labels=networks.SENTIMENT.labels)
    model = networks.network(networks.bert_config(num_layers=2), tasks=[task], tokenizer=tokenizer)
    kernel = model.weights_by_path()["encoder.layers.0.feed_forwards.0.output.kernel"]
    kernel.assign(kernel * np.where(np.arange(40) == 7, 3_000, 1).astype(np.float32))
    return model


def test_squares_of_layer_norm_are_scaled(tmp_path: Path) -> None:
    model = with_large_squares(tmp_path)
    plain = to_tflite(
        optimize_graph(model, GraphOptimizations().for_recipe(get_recipe("float16"))), (LENGTH,), get_recipe("float32")
    )
    assert model.tokenizer is not None
    texts = bucket_texts(model.tokenizer, TEXTS, None, (LENGTH,))
    before = float16_range(plain, texts)
    # The square, its mean, and the mean with epsilon.
    assert len(before.warnings) == 3 and before.warnings[0].startswith("layer 1's MUL")
    scaled = fit_float16(plain, texts)
    assert float16_range(scaled, texts).warnings == []
    # Powers of two: the same bits.
    for expected, received in zip(outputs_of(plain, texts), outputs_of(scaled, texts), strict=True):
        assert np.array_equal(expected["logits"], received["logits"])


@pytest.mark.nightly
def test_export_scales_squares(tmp_path: Path) -> None:
    with_large_squares(tmp_path).save_pretrained(tmp_path / "model")
    assert export(tmp_path) == 0
    assert verification(tmp_path)["activation_range"]["float16"]["warnings"] == []


@pytest.mark.nightly
def test_bare_encoder_keeps_its_outputs(tmp_path: Path) -> None:
    # The embedding and the first layer's output are 2^17 times as large, the second layer's output is not.
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    model = networks.network(networks.mobilebert_config(), tasks=[], tokenizer=tokenizer)
    weights, large = model.weights_by_path(), 2.0**17
    for path in ("embeddings.norm.gamma", "embeddings.norm.beta", "layers.0.bottleneck.output_norm.beta"):
        weights[f"encoder.{path}"].assign(weights[f"encoder.{path}"] * large)
    for part in ("kernel", "bias"):
        path = f"encoder.layers.0.bottleneck.output.{part}"
        weights[path].assign(weights[path] * large)
    for layer in range(2):
        for reader in ("bottleneck.input", "bottleneck.query_key", "attention.value"):
            path = f"encoder.layers.{layer}.{reader}.kernel"
            weights[path].assign(weights[path] / large)
    gamma = weights[LAST_GAMMA]
    gamma.assign(gamma / large)
    for part in ("kernel", "bias"):
        path = f"encoder.layers.1.bottleneck.output.{part}"
        weights[path].assign(weights[path] * large)
    model.save_pretrained(tmp_path / "model")
    assert export(tmp_path) == 0
    assert verification(tmp_path)["activation_range"]["largest"]["value"] <= FLOAT16_MAX / 8
    assert verification(tmp_path)["operators"]["MUL"] > 0


@pytest.mark.nightly
def test_close_activation_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Logits of order 1 become tens of thousands.
    saved(tmp_path, {})
    assert export(tmp_path) == 0
    plain = verification(tmp_path)["activation_range"]["maxima"]
    (logits,) = (value for name, value in plain.items() if name.startswith("output "))
    capsys.readouterr()
    near = tmp_path / "near"
    near.mkdir()
    saved(near, {HEAD: 40_000 / logits})
    assert export(near) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert "export float16: warning: output " in warning
    assert "within a factor of 8 of float16's largest, 65,504" in warning
    assert cli.main(["verify", str(near / "bundle")]) == 0
    assert "verify: warning: output " in capsys.readouterr().err


@pytest.mark.nightly
def test_large_constant_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(tmp_path, {})
    # Part of the fused input projections, whose matrix is large enough for float16.
    kernel = model.weights_by_path()[VALUE]
    kernel.assign(np.where(np.arange(16) == 3, 1e6, kernel.numpy()))
    model.save_pretrained(tmp_path / "model", overwrite=True)
    assert export(tmp_path) == 1
    stderr = capsys.readouterr().err
    assert re.search(r"constants: \S* against .*largest absolute floating-point constant, read by \S*/block", stderr)


@pytest.mark.nightly
def test_other_recipes_have_no_range(tmp_path: Path) -> None:
    saved(tmp_path, {HEAD: 30_000.0})
    assert export(tmp_path, "float32") == 0
    assert verification(tmp_path)["activation_range"] is None
