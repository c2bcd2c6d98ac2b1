"""Export to float16 says how large activations are in the network that the file computes."""

from __future__ import annotations

import json
from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

LAYERS = 2


def export(folder: Path, gammas: dict[int, float], recipe: str = "float16") -> dict:
    """Exports a MobileBERT whose layers' last gammas are multiplied, and gives its verification.json."""
    tokenizer = WordPieceTokenizer(networks.vocabulary(folder))
    # The gate compares these labels' logits as they are: centred over the classes, those of a random NoNorm network
    # err by more than float16's bound.
    task = TaskConfig(kind="multi_label", name="mood", labels=networks.SENTIMENT.labels)
    model = networks.network(networks.mobilebert_config(), tasks=[task], tokenizer=tokenizer)
    for layer, factor in gammas.items():
        multiply(model, layer, factor)
    model.save_pretrained(folder / "model")
    arguments = [f"--model={folder / 'model'}", f"--recipe={recipe}", "--lengths=19", f"--output={folder / 'bundle'}"]
    assert cli.main(["export", *arguments]) == 0
    return json.loads((folder / "bundle" / "verification.json").read_text(encoding="utf-8"))


def multiply(model: Model, layer: int, factor: float) -> None:
    gamma = model.weights_by_path()[f"encoder.layers.{layer - 1}.bottleneck.output_norm.gamma"]
    gamma.assign(gamma * factor)


def test_overflow_warning_names_the_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Beyond what is folded, so that the file computes NoNorm as it is; in the last layer, so that no softmax turns
    # float16's rounding of weights into another answer.
    written = export(tmp_path, {2: 3000.0})
    captured = capsys.readouterr()
    maxima = written["activation_range"]
    assert maxima["hidden_states"][2] > 65_504 > 8 * maxima["hidden_states"][1]
    assert len(maxima["hidden_states"]) == LAYERS + 1 and len(maxima["attention_logits"]) == LAYERS
    assert json.loads(captured.out)["activation_range"] == maxima
    said = [line for line in captured.err.splitlines() if "export float16: warning: " in line]
    assert "layer 2's hidden state: " in said[0] and "which overflows in float16" in said[0]
    assert "the embedding's output" not in captured.err

    assert cli.main(["verify", str(tmp_path / "bundle"), f"--model={tmp_path / 'model'}"]) == 0
    assert "verify: warning: layer 2's hidden state: " in capsys.readouterr().err


def test_maxima_come_from_folded_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, larger = tmp_path / "plain", tmp_path / "larger"
    plain.mkdir(), larger.mkdir()
    before = export(plain, {})["activation_range"]
    after = export(larger, {2: 20.0})["activation_range"]
    # Folded, the last gamma multiplies the residual stream from its start: 20 is part of every earlier unit. Products
    # in float32, rounded a few times.
    ratios = np.divide(after["hidden_states"], before["hidden_states"])
    np.testing.assert_allclose(ratios[:LAYERS], 20, rtol=1e-5)
    assert "warning" not in capsys.readouterr().err


def test_other_recipes_have_none(tmp_path: Path) -> None:
    assert export(tmp_path, {}, recipe="float32")["activation_range"] is None
