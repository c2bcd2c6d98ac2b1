"""A bundle holds what it says, or does not open."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import golden_checks
import networks
import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.presets import PRESETS
from pocketbert.recipes import RECIPES
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.conversion.graph_optimization import APPLIED, is_applied
from pocketbert_export.exporter import export
from pocketbert_export.verification.verify import GateFailed

LENGTHS = (7, 19)
TEXTS = [
    "the film is good .",
    "a cat walks",
    "the story begins well , but ends very badly , and the film is not bright or good !",
    "dull",
    "rain or sun , the dog walked and walked and walked and walked and walked and walked and walked on",
]


def examples() -> Examples:
    return Examples(
        texts=TEXTS, pairs=None, labels=None, ids=[str(index) for index in range(len(TEXTS))], source="written texts"
    )


@pytest.fixture(scope="module")
def model(small_model: Model) -> Model:
    return small_model


@pytest.fixture(scope="module")
def directory(small_directory: Path) -> Path:
    return small_directory


def no_metadata(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


@pytest.fixture(scope="module")
def bundle(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Exported where no package has metadata, as under Bazel."""
    path = tmp_path_factory.mktemp("bundle") / "float32"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.metadata, "version", no_metadata)
        return export(directory, path, recipe="float32", lengths=LENGTHS, examples=examples())


@pytest.fixture
def copy(bundle: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle.directory, tmp_path / "copy"))


def test_it_says_what_it_is(bundle: Bundle) -> None:
    assert bundle.task == networks.SENTIMENT
    assert bundle.lengths == LENGTHS
    assert bundle.recipe == "float32"
    assert bundle.runtimes == ("litert",)
    assert bundle.output_names == ("logits",)
    assert bundle.graph_optimizations["first_token_only"] == APPLIED
    assert bundle.graph_optimizations["fuse_projections"].startswith("does not pay")
    assert (bundle.directory / "labels.txt").read_text(encoding="utf-8").split() == ["bad", "fair", "good"]
    tools = json.loads((bundle.directory / "bundle.json").read_text(encoding="utf-8"))["tools"]
    packages = ("pocketbert", "tensorflow", "tf_keras", "ai-edge-litert")
    assert tools == {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }
    assert sorted(path.name for path in bundle.directory.glob("[!.]*")) == [
        "README.md",
        "answers.jsonl",
        "bundle.json",
        "goldens.safetensors",
        "labels.txt",
        "model.tflite",
        "tokenizer.json",
        "verification.json",
        "vocab.txt",
    ]
    assert json.loads((bundle.directory / "verification.json").read_text(encoding="utf-8"))["passed"] is True


def test_bundle_predicts_like_model(bundle: Bundle, model: Model) -> None:
    assert model.tokenizer is not None
    received = bundle.predictor().logits(TEXTS)
    for text, logits in zip(TEXTS, received, strict=True):
        expected = model(model.tokenizer([text], max_length=LENGTHS[-1]))["logits"].numpy()[0]
        # Float32 rounding: see test_export_convert.
        assert networks.relative(expected, logits) < 2e-4


def test_pairs_are_told_apart(bundle: Bundle, model: Model) -> None:
    assert model.tokenizer is not None
    pairs = ["the sun is bright", "a dog", "no", "very very dull", "the cat"]
    received = bundle.predictor().logits(TEXTS, pairs)
    expected = model(model.tokenizer(TEXTS, pairs, max_length=LENGTHS[-1]))["logits"].numpy()
    assert networks.relative(expected, received) < 2e-4


def test_goldens_have_texts_ids_both_outputs(bundle: Bundle, model: Model) -> None:
    assert {golden.length for golden in bundle.goldens} == set(LENGTHS)
    tokenizer = bundle.tokenizer
    for golden in bundle.goldens:
        pairs = None if golden.pair is None else [golden.pair]
        encoded = tokenizer([golden.text], pairs, max_length=golden.length, pad_to=golden.length)
        for name, rows in golden.inputs.items():
            np.testing.assert_array_equal(rows, encoded[name])
        expected = model(encoded)["logits"].numpy()
        np.testing.assert_allclose(golden.outputs["logits"], expected, rtol=1e-5, atol=1e-5)
        assert networks.relative(expected, golden.exported_outputs["logits"]) < 2e-4
    assert "dull" in [golden.text for golden in bundle.goldens]
    assert any(golden.inputs["input_mask"].sum() == 19 for golden in bundle.goldens)
    lines = golden_checks.check_golden_answers(bundle.directory, model)
    assert any("pair" in line for line in lines)


def test_a_length_that_is_not_there(bundle: Bundle) -> None:
    with pytest.raises(UserError, match="7, 19; received 8"):
        bundle.run(networks.inputs_of(networks.bert_config(), length=8))


def test_all_damaged_and_missing_files_listed(copy: Path) -> None:
    vocabulary = (copy / "vocab.txt").read_bytes()
    (copy / "vocab.txt").write_bytes(vocabulary[:-2] + b"x\n")
    (copy / "model.tflite").write_bytes((copy / "model.tflite").read_bytes()[:-5])
    (copy / "labels.txt").unlink()
    with pytest.raises(UserError, match="labels.txt must be there") as raised:
        Bundle.open(copy)
    assert "vocab.txt must have the sha256" in str(raised.value)
    assert "model.tflite must have" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.update(schema_version=3), "schema_version 4; received 3, .* export the bundle again"),
        (lambda content: content.update(schema_version=5), "schema_version: 4 was expected"),
        (lambda content: content["tokenizer"].update(kind="unigram"), "tokenizer: .*'lowercase', .* unexpected"),
        (lambda content: content.pop("recipe"), "'recipe' is a required property"),
        (lambda content: content.update(colour="red"), "'colour' was unexpected"),
        (lambda content: content["answers"].pop("tolerance"), "answers: 'tolerance' is a required property"),
        (lambda content: content["files"].pop("model.tflite"), "model.tflite must be listed"),
    ],
)
def test_a_changed_description_does_not_open(copy: Path, change: Callable[[dict], object], reason: str) -> None:
    content = json.loads((copy / "bundle.json").read_text(encoding="utf-8"))
    change(content)
    (copy / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=reason):
        Bundle.open(copy)


def test_what_is_no_bundle(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(UserError, match="a bundle must be a folder with bundle.json"):
        Bundle.open(tmp_path / "absent")
    (copy / "bundle.json").write_bytes(b"{\xff")
    with pytest.raises(UserError, match="JSON must be UTF-8"):
        Bundle.open(copy)


def test_a_gate_that_fails_leaves_nothing(directory: Path, tmp_path: Path) -> None:
    strict = dataclasses.replace(RECIPES["dynamic_wi8"].bounds, largest_difference=1e-9, rms_difference=1e-9)
    with pytest.raises(GateFailed, match="difference"):
        export(directory, tmp_path / "bundle", recipe="dynamic_wi8", lengths=(7,), examples=examples(), bounds=strict)
    assert list(tmp_path.iterdir()) == []


def test_fully_optimized_mobilebert_passes_its_gate(tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    config = networks.mobilebert_config(num_layers=1)
    model = networks.network(config, [TaskConfig(kind="regression", name="stars")], tokenizer)
    model.save_pretrained(tmp_path / "model")
    bundle = export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=(11,), examples=examples())
    unsuited = {name for name, decided in bundle.graph_optimizations.items() if not is_applied(decided)}
    # MobileBERT has no LayerNorm.
    assert unsuited == {"fold_beta", "fold_pre_norm"}
    assert not (bundle.directory / "labels.txt").exists()
    with padding_after_texts(model):
        expected = model(tokenizer(TEXTS, max_length=11))["logits"].numpy()
    assert networks.relative(expected, bundle.predictor().logits(TEXTS)) < 2e-4


@pytest.mark.one_of_each("float32")
@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8"])
def test_expressions_pass_their_gate(tmp_path: Path, recipe: str) -> None:
    """All operations; `mul` truncates an operand. The converter decomposes some activations."""
    config = networks.efficientbert_config(
        "tanh(linear2_2(gelu(linear2_2(x))))",
        "sigmoid(linear1_3(relu(mul(linear1_3(x),x))))",
        "leaky_relu(linear1_1(elu(linear1_1(max(x,swish(x))))))",
        "add(x,linear1_2(swish(linear1_2(elu(x)))))",
    )
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    model = networks.network(config, tokenizer=tokenizer)
    bundle = export(model, tmp_path / "bundle", recipe=recipe, lengths=(11,), examples=examples())
    with padding_after_texts(model):
        expected = model(tokenizer(TEXTS, max_length=11))["logits"].numpy()
    bound = {"float32": 2e-4, "dynamic_wi8": RECIPES["dynamic_wi8"].bounds.largest_difference}[recipe]
    assert networks.relative(expected, bundle.predictor().logits(TEXTS)) < bound


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8"])
@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("efficientbert")])
def test_efficientbert_presets_pass_their_gate(tmp_path: Path, name: str, recipe: str) -> None:
    # The embedding table of a full vocabulary would be most of the weights, and tests nothing more.
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    config = PRESETS[name].config.replace(vocab_size=tokenizer.vocab_size)
    model = networks.network(config, tokenizer=tokenizer)
    bundle = export(model, tmp_path / "bundle", recipe=recipe, lengths=(11,), examples=examples())
    assert bundle.recipe == recipe and bundle.predictor().logits(TEXTS).shape == (len(TEXTS), 3)


def test_source_is_recorded_by_checksum(bundle: Bundle, directory: Path) -> None:
    from pocketbert.files import sha256

    content = json.loads((bundle.directory / "bundle.json").read_text(encoding="utf-8"))
    assert content["source"] == {"model.safetensors": sha256(directory / "model.safetensors")}
    assert content["files"]["verification.json"]["sha256"] == sha256(bundle.directory / "verification.json")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"recipe": "int3"}, "a recipe must be one of"),
        ({"lengths": (7, 64)}, "received 64"),
        ({"runtime": "android"}, "a runtime must be one of"),
    ],
)
def test_bad_arguments_write_nothing(directory: Path, tmp_path: Path, arguments: dict, reason: str) -> None:
    options = {"recipe": "float32", "lengths": (7,), "output": tmp_path / "bundle", **arguments}
    with pytest.raises(UserError, match=reason):
        export(directory, **options)
    assert list(tmp_path.iterdir()) == []


def test_model_without_vocabulary_or_head_fails(tmp_path: Path) -> None:
    networks.network(networks.bert_config()).save_pretrained(tmp_path / "bare")
    with pytest.raises(UserError, match="needs a vocabulary"):
        export(tmp_path / "bare", tmp_path / "bundle", recipe="float32", lengths=(7,))
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    networks.network(networks.bert_config(), [TaskConfig(kind="masked_lm")], tokenizer).save_pretrained(
        tmp_path / "masked"
    )
    with pytest.raises(UserError, match="no masked-LM head"):
        export(tmp_path / "masked", tmp_path / "bundle", recipe="float32", lengths=(7,))
