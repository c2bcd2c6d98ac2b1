"""The real MediaPipe client on our files, in its own environment."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import read_glue
from pocketbert.encoder import INPUT_NAMES
from pocketbert.model import from_preset, from_pretrained
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients import mediapipe_files
from pocketbert_export.clients.mediapipe_client import MEDIAPIPE, check_answers, run_client
from pocketbert_export.clients.mediapipe_files import mediapipe_ids, task_file, write_task_files
from pocketbert_export.exporter import export
from pocketbert_export.tflite.graph import read_model, write_model
from pocketbert_export.tflite.model_metadata import TensorDescription, add_metadata, append_files
from pocketbert_export.tflite.runtimes import RuntimeRefused
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_vocabulary

pytestmark = pytest.mark.skipif(
    os.environ.get("CI", "").lower() != "true" and not MEDIAPIPE.exists,
    reason="MediaPipe has no environment here; pocketbert verify --mediapipe makes one",
)
TEXTS = ["the film is good .", "a Dull, DULL story", "walks walked WALKING", "", "dog " * 40]
# Texts on which tokenizers disagree.
AWKWARD = [
    "Café in Zürich, naïve Ångström",
    "ÎLE de l'Été",
    "東京は大きい。",
    "tab\tand\u00a0no-break\u3000ideographic space",
    "zero\u200bwidth and \u00ad soft hyphen",
    "[MASK] and [SEP] in a text",
    "don't stop-it!? $5 & 7% <br/> ^_^ `x` ~y~",
    "price: 1,250€ — “quoted” … ¿qué?",
    "x" * 101 + " and " + "ü" * 51,
    "e\u0301 combining",
    "emoji 😀 here",
    "null\x01control\x7f",
]


@pytest.fixture(scope="module")
def bundle(small_bundle: Path) -> Bundle:
    return Bundle.open(small_bundle)


@pytest.fixture
def files(bundle: Bundle, tmp_path: Path) -> Path:
    """The files of the bundle."""
    write_task_files(bundle, tmp_path / "files", TEXTS)
    return tmp_path / "files"


def test_client_gives_the_bundles_scores(bundle: Bundle, files: Path) -> None:
    version, check = check_answers(bundle, [*TEXTS, "Gööd"], files)
    assert version == "1.2.2"
    assert check.passed, check.reason
    assert check.reason.startswith("5 texts at 2 lengths, 0 other labels; 1 of 6 texts left out")
    # The same operators in float32.
    assert check.measured < 1e-5


@pytest.mark.nightly
def test_client_shows_labels_and_scores(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "file.tflite"
    path.write_bytes(task_file(bundle, 7))
    _, answers = run_client("TextClassifier", {str(path): ["the film"]})
    (scores,) = answers[str(path)]
    expected = bundle.predict(["the film"])[0]["probabilities"]
    assert scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.nightly
def test_swapped_labels_fail(bundle: Bundle, files: Path) -> None:
    swapped = Bundle.open(bundle.directory)
    swapped.task = dataclasses.replace(bundle.task, labels=("fair", "bad", "good"))
    _, check = check_answers(swapped, TEXTS, files)
    assert not check.passed


@pytest.mark.nightly
def test_swapped_inputs_fail(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = mediapipe_files._INPUTS
    swapped = {**names, "input_mask": names["input_type_ids"], "input_type_ids": names["input_mask"]}
    monkeypatch.setattr(mediapipe_files, "_INPUTS", swapped)
    write_task_files(bundle, tmp_path / "files", TEXTS)
    _, check = check_answers(bundle, TEXTS, tmp_path / "files")
    assert not check.passed


@pytest.mark.nightly
def test_missing_input_name_fails(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unnamed = {**mediapipe_files._INPUTS, "input_mask": TensorDescription("length", "")}
    monkeypatch.setattr(mediapipe_files, "_INPUTS", unnamed)
    write_task_files(bundle, tmp_path / "files", TEXTS)
    _, check = check_answers(bundle, TEXTS, tmp_path / "files")
    assert not check.passed and "mediapipe ended with code 1" in check.reason


def test_verify_runs_the_client(bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = shutil.copytree(bundle.directory, tmp_path / "mood")
    write_task_files(bundle, tmp_path / "mood-mediapipe", TEXTS)
    assert cli.main(["verify", str(copied), "--mediapipe"]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert verified["runtimes"]["mediapipe"] == "1.2.2"
    assert [check["name"] for check in verified["checks"][-2:]] == ["mediapipe files", "mediapipe"]


@pytest.mark.nightly
def test_client_refuses_a_file_without_metadata(bundle: Bundle) -> None:
    with pytest.raises(RuntimeRefused, match="mediapipe ended with code 1"):
        run_client("TextClassifier", {str(bundle.model_path): ["the film"]})


@pytest.fixture(scope="module")
def ids_file(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose embedding is the token ids."""
    vocabulary = (shared / "data/vocab/bert-base-uncased.vocab.txt").read_bytes()

    @tf.function(input_signature=[tf.TensorSpec([1, 64], tf.int32, name=name) for name in INPUT_NAMES])
    def embed(input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor) -> tf.Tensor:
        total = input_word_ids * input_mask + input_type_ids
        return tf.cast(total, tf.float32)

    model = read_model(tf.lite.TFLiteConverter.from_concrete_functions([embed.get_concrete_function()]).convert())
    graph: schema.SubGraphT = model.subgraphs[0]
    file_names = {"input_word_ids": "ids", "input_mask": "mask", "input_type_ids": "segment_ids"}
    add_metadata(
        model,
        name="ids",
        description="",
        inputs=[
            TensorDescription(
                next(file_names[name] for name in file_names if name in graph.tensors[index].name.decode()), ""
            )
            for index in graph.inputs
        ],
        outputs=[TensorDescription("ids", "")],
        vocabulary_file="vocab.txt",
    )
    path = tmp_path_factory.mktemp("ids") / "ids.tflite"
    path.write_bytes(append_files(write_model(model), {"vocab.txt": vocabulary}))
    return path


@pytest.mark.data
def test_our_copy_of_its_tokenizer(ids_file: Path, shared: Path) -> None:
    vocab = shared / "data/vocab/bert-base-uncased.vocab.txt"
    tokens = read_vocabulary(vocab)
    _, answers = run_client("TextEmbedder", {str(ids_file): AWKWARD})
    received = np.array(answers[str(ids_file)]).astype(int)
    special = [tokens.index(token) for token in ("[CLS]", "[SEP]")]
    for text, row, expected in zip(AWKWARD, received, mediapipe_ids(tokens, AWKWARD), strict=True):
        expected_tokens = [special[0], *expected[:62], special[1]]
        assert row.tolist() == expected_tokens + [0] * (64 - len(expected_tokens)), text


@pytest.mark.nightly
@pytest.mark.data
def test_200_sentences_within_the_recipes_bound(shared: Path, minilm_directory: Path, tmp_path: Path) -> None:
    sentences = read_glue("sst2", shared / "data/glue", "dev").texts[::4][:200]
    encoder = from_pretrained(minilm_directory)
    task = TaskConfig(kind="classification", labels=("left", "middle", "right"))
    model = from_preset(encoder.config, [task], encoder.tokenizer, seed=3)
    model.encoder.set_weights(encoder.encoder.get_weights())
    # Wide enough that scores differ between sentences.
    model.heads["classification"].output_projection.kernel.assign(
        tf.random.stateless_normal([384, 3], seed=[1, 2]) * 0.3
    )
    bundle = export(model, tmp_path / "bundle", lengths=[32])
    path = tmp_path / "file.tflite"
    path.write_bytes(task_file(bundle, 32))
    _, answers = run_client("TextClassifier", {str(path): sentences})
    received = np.array([[scores[label] for label in task.labels] for scores in answers[str(path)]])
    inputs = model.tokenizer(sentences, max_length=32, pad_to=32)
    logits = model(inputs)["logits"].numpy()
    expected = tf.nn.softmax(logits).numpy()
    bounds = RECIPES["dynamic_wi8"].bounds
    # A change of each logit by d changes a probability by at most d / 2.
    assert np.abs(received - expected).max() < bounds.largest_difference * np.sqrt(np.mean(logits**2)) / 2
    assert (received.argmax(axis=1) == bundle.run(inputs)["logits"].argmax(axis=1)).all()
    assert (received.argmax(axis=1) == expected.argmax(axis=1)).mean() >= bounds.label_agreement


@pytest.mark.nightly
@pytest.mark.data
def test_embedder_finds_the_float_models_neighbour(shared: Path, minilm_directory: Path, tmp_path: Path) -> None:
    sentences = [text for text in read_glue("sst2", shared / "data/glue", "train").texts if text.isascii()]
    sentences = list(dict.fromkeys(sentences))[:: len(sentences) // 1100][:1000]
    examples = Examples(sentences[:64], None, None, [str(index) for index in range(64)], "SST-2")
    task = TaskConfig(kind="embedding", embedding=EmbeddingConfig())
    encoder = from_pretrained(minilm_directory)
    model = from_preset(encoder.config, [task], encoder.tokenizer, seed=3)
    model.encoder.set_weights(encoder.encoder.get_weights())
    bundle = export(model, tmp_path / "bundle", lengths=[64], examples=examples)
    path = tmp_path / "file.tflite"
    path.write_bytes(task_file(bundle, 64))
    assert Interpreter(str(path)).get_output_details()[0]["shape"].tolist() == [1, 384]
    _, answers = run_client("TextEmbedder", {str(path): sentences})
    received = np.array(answers[str(path)])
    expected = model(model.tokenizer(sentences, max_length=64, pad_to=64))["embedding"].numpy()
    # Each sentence searches among the others.
    apart = np.eye(len(sentences)) * 9
    expected_nearest, nearest = (
        np.argsort(apart - vectors @ vectors.T, axis=1)[:, :10] for vectors in (expected, received)
    )
    recall = (nearest == expected_nearest[:, :1]).any(axis=1).mean()
    overlap = np.mean(
        [len(set(right) & set(neighbours)) / 10 for right, neighbours in zip(expected_nearest, nearest, strict=True)]
    )
    assert len(sentences) == 1000 and recall >= 0.99
    # Stricter: int8 reorders neighbours whose cosines differ by less than its rounding. The study `sentence_embeddings`
    # found 0.958 for such a file, and 1 for float32.
    assert overlap >= 0.95
