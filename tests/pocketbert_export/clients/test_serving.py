"""The SavedModel that takes texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import networks
import numpy as np
import pytest
import tensorflow as tf

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_export.clients.serving import write_serving_model
from pocketbert_runtime.embedding_config import EmbeddingConfig

# Of different lengths, one longer than 11 tokens.
TEXTS = ["the film is good .", "A döll, dull Film", "", "walks walked " * 9, "[SEP] dog"]
PAIRS = ["sun", "the cat is bad !", "rain", "", "not"]
# As in test_export_convert.
TOLERANCE = 2e-4


@pytest.fixture(scope="module")
def folder(small_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serving") / "1"
    write_serving_model(small_model, path, 11)
    return path


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_loaded_signature_answers_texts(folder: Path, small_model: Model) -> None:
    loaded = tf.saved_model.load(str(folder))
    assert set(loaded.signatures) == {"serving_default", "pairs"}
    received = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    # One by one, without padding.
    expected = np.concatenate([small_model(small_model.tokenizer([text], max_length=11))["logits"] for text in TEXTS])
    assert networks.relative(expected, received["logits"].numpy()) < TOLERANCE
    np.testing.assert_allclose(received["scores"], softmax(received["logits"].numpy()), atol=1e-6)


@pytest.mark.nightly
def test_loaded_signature_answers_pairs(folder: Path, small_model: Model) -> None:
    received = tf.saved_model.load(str(folder)).signatures["pairs"](text=tf.constant(TEXTS), pair=tf.constant(PAIRS))
    inputs = small_model.tokenizer(TEXTS, PAIRS, max_length=11)
    assert networks.relative(small_model(inputs)["logits"].numpy(), received["logits"].numpy()) < TOLERANCE


@pytest.mark.nightly
def test_process_without_pocketbert_answers(folder: Path, small_model: Model) -> None:
    program = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        f"signature = tf.saved_model.load({str(folder)!r}).signatures['serving_default']\n"
        "answer = signature(text=tf.constant(['a dull film']))\n"
        "assert 'pocketbert' not in sys.modules\n"
        "print(*answer['logits'].numpy()[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    expected = small_model(small_model.tokenizer(["a dull film"], max_length=11))["logits"].numpy()[0]
    assert networks.relative(expected, np.array(done.stdout.split(), np.float64)) < TOLERANCE


@pytest.mark.nightly
def test_prompt_precedes_texts(small_model: Model, tmp_path: Path) -> None:
    prompted = EmbeddingConfig(prompts=(("query", "the sun "),), default_prompt="query")
    config = networks.bert_config().replace(pooler="none")
    model = networks.network(config, [TaskConfig(kind="embedding", embedding=prompted)], small_model.tokenizer)
    write_serving_model(model, tmp_path / "1", 11)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    assert set(loaded.signatures) == {"serving_default"}
    received = loaded.signatures["serving_default"](text=tf.constant(["walks"]))["embedding"].numpy()
    expected = model(model.tokenizer(["the sun walks"], max_length=11))["embedding"].numpy()
    assert networks.relative(expected, received) < TOLERANCE


def test_unsuitable_models_are_refused(small_model: Model, tmp_path: Path) -> None:
    span = networks.network(networks.bert_config(), [TaskConfig(kind="span")], small_model.tokenizer)
    with pytest.raises(UserError, match="received span.*use write_saved_model"):
        write_serving_model(span, tmp_path / "1", 11)
    with pytest.raises(UserError, match="received a model without"):
        write_serving_model(networks.network(networks.bert_config()), tmp_path / "1", 11)
    with pytest.raises(UserError, match="received 99"):
        write_serving_model(small_model, tmp_path / "1", 99)
    assert not list(tmp_path.iterdir())


def test_command_writes_it(small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "export",
        f"--model={small_directory}",
        "--recipe=float32",
        "--lengths=7",
        f"--output={tmp_path / 'b'}",
    ]
    assert cli.main([*arguments, "--saved-model-inputs=text"]) == 2
    assert "needs --saved-model" in capsys.readouterr().err
    assert cli.main([*arguments, f"--saved-model={tmp_path / 'served'}", "--saved-model-inputs=text"]) == 0
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    assert loaded.signatures["serving_default"](text=tf.constant(["rain"]))["logits"].shape == (1, 3)
