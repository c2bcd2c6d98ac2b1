"""`pocketbert convert` from the outside."""

import json

import hub_stand_in
import numpy as np
import pytest
from test_tf1 import BERT_CONFIG, bert_variables, write
from tiny_models import random_tensors, tiny_bert

from pocketbert import cli
from pocketbert.checkpoints.directory import read_directory, write_directory
from pocketbert.configs import TokenizerConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def convert(capsys, *arguments):
    code = cli.main(["convert", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_from_transformers(reference, tmp_path, capsys):
    code, out, _ = convert(capsys, "--from=hf", f"--input={reference / 'bert_span'}", f"--output={tmp_path / 'new'}")
    assert code == 0
    assert json.loads(out) == {
        "output": str(tmp_path / "new"),
        "model_type": "bert",
        "tasks": ["span"],
        "parameters": 11956,
        "lowercase": None,
    }
    written = (tmp_path / "new/model.safetensors").read_bytes()
    assert written == (reference / "bert_span/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "flag, token, lowercase",
    [([], "Piece", False), ([], "[UNK]", True), (["--nolowercase"], "[UNK]", False), (["--lowercase"], "Piece", True)],
)
def test_from_tensorflow_1(flag, token, lowercase, tmp_path, capsys):
    write(tmp_path / "bert", BERT_CONFIG, bert_variables())
    tokens = [token, *(f"piece{index}" for index in range(30))]
    (tmp_path / "bert/vocab.txt").write_text("\n".join(tokens))
    code, out, _ = convert(capsys, "--from=tf1", f"--input={tmp_path / 'bert'}", f"--output={tmp_path / 'new'}", *flag)
    assert code == 0
    assert json.loads(out)["lowercase"] is lowercase
    directory = read_directory(tmp_path / "new")
    assert directory.config.activation == "gelu_tanh"
    assert (directory.tokenizer and directory.tokenizer.lowercase) is lowercase
    assert directory.vocab_path is not None


def test_to_model_garden_and_back(tmp_path, vocabulary, capsys):
    config = tiny_bert(activation="gelu_tanh")
    tensors = random_tensors(config)
    write_directory(tmp_path / "model", config, (), tensors, Vocabulary(path=vocabulary, config=TokenizerConfig()))
    code, out, _ = convert(
        capsys, "--to=model-garden", f"--input={tmp_path / 'model'}", f"--output={tmp_path / 'garden'}"
    )
    assert code == 0
    assert json.loads(out)["model_type"] == "bert"
    code, out, _ = convert(
        capsys, "--from=model-garden", f"--input={tmp_path / 'garden'}", f"--output={tmp_path / 'back'}"
    )
    assert code == 0
    again = read_directory(tmp_path / "back")
    assert again.config == config
    for path, tensor in tensors.items():
        np.testing.assert_array_equal(again.tensors[path], tensor, err_msg=path)
    assert again.vocab_path is not None and again.vocab_path.read_bytes() == vocabulary.read_bytes()


def test_nothing_is_written_on_error(reference, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("one\ntwo\n")
    code, out, err = convert(
        capsys,
        "--from=hf",
        f"--input={reference / 'bert_span'}",
        f"--output={tmp_path / 'new'}",
        f"--vocab={tmp_path / 'vocab.txt'}",
    )
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "received 2 tokens for 99 rows" in err
    assert [item.name for item in tmp_path.iterdir()] == ["vocab.txt"]


def test_an_existing_output_is_kept_without_overwrite(reference, tmp_path, capsys):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/mine.txt").write_text("mine")
    arguments = ["--from=hf", f"--input={reference / 'bert_span'}", f"--output={tmp_path / 'new'}"]
    code, _, err = convert(capsys, *arguments)
    assert code == 2
    assert "must not exist yet" in err
    assert (tmp_path / "new/mine.txt").read_text() == "mine"
    code, _, err = convert(capsys, *arguments, "--overwrite")
    assert code == 2 and "replaces only what it made" in err and "with mine.txt" in err
    assert (tmp_path / "new/mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--input=x", "--output=y"], "--from or --to is required; received neither"),
        (
            ["--from=hf", "--to=model-garden", "--input=x", "--output=y"],
            "--from or --to is required; received both",
        ),
        (["--from=hf", "--output=y"], "--input is required"),
        (["--from=hf", "--input=x"], "--output is required"),
        (["--from=onnx", "--input=x", "--output=y"], "--from=onnx: must be one of hf, tf1, model-garden"),
        (["--from=hf", "--input=a/b/c", "--output=y"], "a model directory must be a folder; received a/b/c"),
    ],
)
def test_wrong_flags(arguments, message, capsys):
    code, out, err = convert(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("module_folder", ["", "0_Transformer"])
def test_hub_model_keeps_its_modules(module_folder, tmp_path, capsys, monkeypatch):
    from test_sentence_transformers import write_sentence_transformer

    folder = write_sentence_transformer(tmp_path / "given", "max", dense=True, normalize=True)
    if module_folder:
        (folder / module_folder).mkdir()
        for file in ("config.json", "model.safetensors", "vocab.txt", "sentence_bert_config.json"):
            (folder / file).rename(folder / module_folder / file)
        modules = json.loads((folder / "modules.json").read_text())
        modules[0]["path"] = module_folder
        (folder / "modules.json").write_text(json.dumps(modules))

    with hub_stand_in.serve() as hub:
        hub_stand_in.connect(monkeypatch, hub.endpoint, tmp_path / "cache")
        hub.push("someone/embedding", folder)
        code, out, _ = convert(capsys, "--from=hf", "--input=someone/embedding", f"--output={tmp_path / 'new'}")
    assert code == 0 and json.loads(out)["tasks"] == ["embedding"]
    copy, original = read_directory(tmp_path / "new"), read_directory(folder)
    assert copy.tasks == original.tasks and copy.tensors.keys() == original.tensors.keys()
    assert copy.vocabulary is not None


@pytest.mark.parametrize("name", ["someone/bert-tiny", "hf:someone/bert-tiny", "hf:someone/bert-tiny@main"])
def test_hub_names(name, reference, tmp_path, capsys, monkeypatch):
    with hub_stand_in.serve() as hub:
        hub_stand_in.connect(monkeypatch, hub.endpoint, tmp_path / "cache")
        hub.push("someone/bert-tiny", reference / "bert_gelu")
        code, out, _ = convert(capsys, "--from=hf", f"--input={name}", f"--output={tmp_path / 'new'}")
        assert code == 0
        assert json.loads(out)["tasks"] == ["masked_lm", "next_sentence"]
        assert hub.files() == ["config.json", "model.safetensors"]


def test_keras_weights_on_the_hub(tmp_path, capsys, monkeypatch):
    with hub_stand_in.serve() as hub:
        hub_stand_in.connect(monkeypatch, hub.endpoint, tmp_path / "cache")
        hub.push("someone/keras", {"config.json": b"{}", "tf_model.h5": b"damaged", "pytorch_model.bin": b"x"})
        code, _, err = convert(capsys, "--from=hf", "--input=someone/keras", f"--output={tmp_path / 'new'}")
        assert code == 2 and "tf_model.h5 must be a complete HDF5 file" in err
        assert hub.files() == ["config.json", "tf_model.h5"]
    code, _, err = convert(capsys, "--from=hf", "--input=someone/none", f"--output={tmp_path / 'new'}")
    assert code == 2 and "hf:someone/none: the connection to the hub failed" in err


def test_help_has_an_example(capsys):
    code, out, _ = convert(capsys, "--help")
    assert code == 0
    assert "Example:" in out
    assert "--[no]lowercase" in out
