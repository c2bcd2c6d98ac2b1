"""ALBERT with Chinese characters: fine-tuned on names, exported, and answered by the runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.presets import preset
from pocketbert.training.config import FinetuneConfig
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.recipes import get_recipe
from pocketbert_runtime.bundles.bundle import Bundle

SURNAMES, GIVEN, OTHERS = "王李张刘陈", "伟芳娜敏静强", "的在是了和说去来看书天人"
PIECES = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *SURNAMES, *GIVEN, *OTHERS]
CONFIG = tiny.BERT.replace(
    model_type="albert",
    vocab_size=len(PIECES),
    hidden_size=40,
    num_layers=2,
    head_size=8,
    embedding_size=28,
    embedding_projection="output",
    layer_groups=1,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    pooler="none",
)


def write_sentences(path: Path, count: int, seed: int) -> None:
    """Sentences of characters, each a word: names of a surname and one or two characters among others."""
    random, sentences = np.random.default_rng(seed), []
    for _ in range(count):
        words: list[tuple[str, str]] = []
        for _ in range(int(random.integers(1, 4))):
            words += [(str(word), "O") for word in random.choice([*OTHERS], random.integers(1, 4))]
            name = [random.choice([*SURNAMES]), *random.choice([*GIVEN], random.integers(1, 3))]
            words += [(str(word), "I-PER" if index else "B-PER") for index, word in enumerate(name)]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in words))
    path.write_text("\n".join(sentences), encoding="utf-8")


def data_of(folder: Path) -> TaskData:
    return pb.data.tagged(folder / "train.conll", dev=folder / "dev.conll")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run/`, fine-tuned on names, and `dev.conll`."""
    folder = tmp_path_factory.mktemp("albert")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    tokenizer = pb.WordPieceTokenizer(folder / "vocab.txt")
    pb.from_preset(CONFIG, tokenizer=tokenizer, seed=3).save_pretrained(folder / "start")
    write_sentences(folder / "train.conll", 150, 1)
    write_sentences(folder / "dev.conll", 41, 2)
    config = FinetuneConfig(epochs=8, batch_size=16, learning_rate=3e-3, max_length=23)
    pb.finetune(folder / "start", data_of(folder), folder / "run", config=config)
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
    pb.export(folder / "run/model", tmp_path / "bundle", recipe=recipe, lengths=(13, 23), examples=data_of(folder))
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
