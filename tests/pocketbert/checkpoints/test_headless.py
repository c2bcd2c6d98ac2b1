"""The encoder of a model alone, and remedies in messages: each is followed and helps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
from safetensors.numpy import load_file, save_file
from test_sentence_transformers import write_sentence_transformer

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError

BATCH = tiny.batch(tiny_finetuning.CONFIG)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    start = pb.from_pretrained(tiny_finetuning.write_model(folder / "start"))
    pb.from_preset(start.config, tiny_finetuning.TASK, start.tokenizer, seed=5).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture
def classifier(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "model"))


def edit(path: Path, **keys: Any) -> None:
    content = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: member for key, member in content.items() if member is not ...}))


def other_class(folder: Path) -> None:
    edit(folder / "config.json", architectures=["BertForMultipleChoice"], pocketbert=...)


def other_tensors(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors") | {"projector.weight": np.zeros([2, 3], np.float32)}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})


def separate_table(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    table = stored["bert.embeddings.word_embeddings.weight"]
    width = table.shape[1]
    head = {"decoder.weight": table + 1, "bias": table[:, 0], "decoder.bias": table[:, 0]}
    head |= {"transform.dense.weight": np.eye(width, dtype=np.float32), "transform.dense.bias": table[0]}
    head |= {"transform.LayerNorm.weight": table[0], "transform.LayerNorm.bias": table[0]}
    stored = {name: tensor for name, tensor in stored.items() if not name.startswith("classifier")}
    stored |= {f"cls.predictions.{name}": np.ascontiguousarray(tensor) for name, tensor in head.items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    edit(folder / "config.json", architectures=["BertForMaskedLM"], pocketbert=..., id2label=..., label2id=...)


def untied(folder: Path) -> None:
    edit(folder / "config.json", tie_word_embeddings=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_class, "received 'BertForMultipleChoice'; load it headless"),
        (other_tensors, "1 unexpected tensors: projector.weight; if they belong to a head .*, load it headless"),
        (separate_table, "decoder.weight must equal .*they differ; load it headless"),
    ],
)
def test_headless_loads_what_the_message_refuses(classifier: Path, change: Any, message: str) -> None:
    expected = pb.from_pretrained(classifier).encoder(BATCH)
    change(classifier)
    with pytest.raises(UserError, match=message):
        pb.from_pretrained(classifier)
    model = pb.from_pretrained(classifier, headless=True)
    assert model.tasks == () and model.tokenizer is not None
    outputs = model(BATCH)
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(outputs[name], values)


def test_separate_table_counts_for_masked_lm_only(classifier: Path) -> None:
    untied(classifier)
    assert pb.from_pretrained(classifier).tasks == (tiny_finetuning.TASK,)
    edit(classifier / "config.json", architectures=["BertForMaskedLM"])
    with pytest.raises(UserError, match="tie_word_embeddings must be True with a masked-LM head; received False"):
        pb.from_pretrained(classifier)
    assert pb.from_pretrained(classifier, headless=True).tasks == ()


@pytest.fixture
def converted(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    other_class(classifier)
    command = ["convert", "--from=hf", f"--input={classifier}", f"--output={tmp_path / 'encoder'}"]
    assert cli.main(command) == 2
    assert "pocketbert convert --from=hf --headless" in capsys.readouterr().err
    assert cli.main([*command, "--headless"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == []
    return tmp_path / "encoder"


def test_conversion_follows_the_remedy(converted: Path) -> None:
    assert pb.from_pretrained(converted).tasks == ()


@pytest.mark.nightly
def test_converted_encoder_becomes_a_bundle(converted: Path, tmp_path: Path) -> None:
    export = ["export", f"--model={converted}", f"--output={tmp_path / 'bundle'}", "--lengths=11"]
    assert cli.main([*export, "--recipe=float32"]) == 0


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "modules.json",
            [{"path": "", "type": "sentence_transformers.models.LSTM"}],
            "received .*LSTM.*load it headless",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode_lasttoken": True},
            "received pooling_mode_lasttoken.*load it headless",
        ),
        ("2_Dense/config.json", {"in_features": 3}, "is missing"),
    ],
)
def test_headless_ignores_modules(tmp_path: Path, file: str, content: Any, message: str) -> None:
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=True, normalize=True)
    expected = pb.from_pretrained(folder).encoder(BATCH)["sequence_output"]
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        pb.from_pretrained(folder)
    output = pb.from_pretrained(folder, headless=True)(BATCH)["sequence_output"]
    np.testing.assert_array_equal(output, expected)


def test_headless_model_has_no_other_task(classifier: Path) -> None:
    with pytest.raises(
        UserError, match="headless loads no head; received True and a regression task; pass one of them"
    ):
        pb.from_pretrained(classifier, headless=True, task=TaskConfig(kind="regression"))
    assert pb.from_pretrained(classifier, headless=True).task is None


def test_headless_needs_transformers_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["convert", "--from=tf1", f"--input={tmp_path}", f"--output={tmp_path / 'new'}", "--headless"]
    assert cli.main(arguments) == 2
    assert "--headless is for --from=hf" in capsys.readouterr().err


def test_unknown_key_is_removed(classifier: Path) -> None:
    expected = pb.from_pretrained(classifier)(BATCH)["logits"]
    edit(classifier / "config.json", note="of mine")
    with pytest.raises(
        UserError, match="key 'note' is unknown and may change the outputs of the model; remove it if it"
    ):
        pb.from_pretrained(classifier)
    edit(classifier / "config.json", note=...)
    np.testing.assert_array_equal(pb.from_pretrained(classifier)(BATCH)["logits"], expected)


@pytest.mark.usefixtures("eager")
def test_lower_casing_moves_to_the_tokenizer(tmp_path: Path) -> None:
    """`do_lower_case` of a module keeps accents, as the remedy does."""
    folder = write_sentence_transformer(tmp_path / "model", "mean", dense=False, normalize=True, do_lower_case=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    message = "set it to true in tokenizer_config.json with strip_accents false"
    with pytest.raises(UserError, match=message):
        pb.from_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "strip_accents": False}))
    model = pb.from_pretrained(folder)
    assert model.tokenizer.tokenize(["FILM"]).to_list() == model.tokenizer.tokenize(["film"]).to_list()
    assert model.tokenizer.tokenize(["f\u00eflm"]).to_list() == [[model.tokenizer.unk_token_id]]


def test_vocabulary_replaces_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_finetuning.write_model(tmp_path / "model")
    (folder / "vocab.txt").rename(tmp_path / "vocab.txt")
    (tmp_path / "text.txt").write_text("the film was good\nand the story\n\na cold plot\nbad actor\n" * 9)
    command = ["pretrain-data", f"--text={tmp_path / 'text.txt'}", f"--output={tmp_path / 'data'}", "--max-length=21"]
    command += ["--shards=1", "--workers=1"]
    assert cli.main([*command, f"--model={folder}"]) == 2
    assert "pass --vocab instead" in capsys.readouterr().err
    assert cli.main([*command, f"--vocab={tmp_path / 'vocab.txt'}"]) == 0
