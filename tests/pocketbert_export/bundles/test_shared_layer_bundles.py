"""ALBERT with Chinese characters: fine-tuned on names, exported, and answered by the runtime."""

from __future__ import annotations

import json
from pathlib import Path

import chinese_names
import pytest

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.presets import preset
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.recipes import get_recipe
from pocketbert_runtime.bundles.bundle import Bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run/`, fine-tuned on names, and `dev.conll`."""
    folder = tmp_path_factory.mktemp("albert")
    chinese_names.write_run(folder)
    return folder


def test_model_learns_the_names(folder: Path) -> None:
    result = json.loads((folder / "run/result.json").read_text())
    assert result["metrics"]["f1"] > 0.95
    content = json.loads((folder / "run/model/config.json").read_text())
    assert content["architectures"] == ["AlbertForTokenClassification"] and content["num_hidden_groups"] == 1


@pytest.mark.one_of_each("dynamic_wi8")
@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8", "dynamic_wi4"])
def test_runtime_gives_pythons_answers(recipe: str, folder: Path, tmp_path: Path) -> None:
    """Through the verification gate."""
    pb.export(
        folder / "run/model",
        tmp_path / "bundle",
        recipe=recipe,
        lengths=(13, 23),
        examples=chinese_names.data_of(folder),
    )
    assert json.loads((tmp_path / "bundle/verification.json").read_text())["passed"]
    text = "王敏伟说了书在李芳的"
    expected = pb.from_pretrained(folder / "run/model").predict([text])[0]["spans"]
    received = Bundle.open(tmp_path / "bundle").predict([text])[0]["spans"]
    assert [(span["label"], span["start"], span["end"]) for span in received] == [
        (span["label"], span["start"], span["end"]) for span in expected
    ]
    assert ("PER", 7, 9) in [(span["label"], span["start"], span["end"]) for span in received]


@pytest.mark.nightly
def test_albert_base_has_ten_megabytes() -> None:
    """A Chinese ALBERT-base, three lengths: each matrix once, 9.95 MB, and scales, biases and graphs."""
    config = preset("albert_base").config.replace(vocab_size=21128, pooler="none")
    model = pb.from_preset(config, task=TaskConfig(kind="token_classification", labels=("O", "B-PER", "I-PER")))
    recipe = get_recipe("dynamic_wi8")
    optimized = optimize_graph(model, GraphOptimizations().for_recipe(recipe))
    assert len(to_tflite(optimized, (32, 64, 128), recipe)) < 10.6e6
