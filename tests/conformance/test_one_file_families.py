"""A family is one file and one row: a toy is read, saved, trained, exported and gated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_finetuning
import toy_runs
from safetensors.numpy import load_file, save_file

import pocketbert as pb
from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.configs import MODEL_TYPES

TOY = "toybert"
# BERT's names → the toy's, in this order.
NAMES = {
    "bert.": "toy.", "word_embeddings": "tokens", "encoder.layer": "blocks", "attention.self": "attention.inputs",
    "LayerNorm": "norm", "pooler": "first_token",
}  # fmt: skip
SAVE = """
import json
import numpy as np
import pocketbert as pb
model = pb.from_pretrained(sys.argv[1])
model.save_pretrained(sys.argv[2])
inputs = {name: np.array(rows, np.int32) for name, rows in json.loads(sys.argv[3]).items()}
print(json.dumps({name: output.numpy().tolist() for name, output in model(inputs).items()}))
"""
READ = """
import pocketbert as pb
try:
    pb.from_pretrained(sys.argv[1])
except pb.UserError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A BERT's model directory, and one with the same weights as the toy's library would write it."""
    folder = tmp_path_factory.mktemp("toy")
    bert, toy = tiny_finetuning.write_model(folder / "bert"), folder / "toy"
    toy.mkdir()
    content = json.loads((bert / "config.json").read_text())
    del content["position_embedding_type"]
    content |= {"model_type": TOY, "architectures": ["ToyBertModel"], "width": content.pop("hidden_size")}
    _write(toy / "config.json", content | {"parallel_blocks": False})
    save_file(
        {_toy_name(name): tensor for name, tensor in load_file(bert / "model.safetensors").items()},
        toy / "model.safetensors",
        {"format": "pt"},
    )
    for name in ("vocab.txt", "tokenizer_config.json"):
        (toy / name).write_bytes((bert / name).read_bytes())
    return bert, toy


def test_toy_is_read_and_saved_back(directories: tuple[Path, Path], tmp_path: Path) -> None:
    bert, toy = directories
    batch = {name: tensor.numpy() for name, tensor in tiny.batch(tiny_finetuning.CONFIG).items()}
    printed = toy_runs.run(
        "toy_family", SAVE, toy, tmp_path / "copy", json.dumps({name: rows.tolist() for name, rows in batch.items()})
    )
    for name, expected in pb.from_pretrained(bert)(batch).items():
        np.testing.assert_allclose(json.loads(printed)[name], expected, rtol=0, atol=1e-6)
    assert json.loads((tmp_path / "copy/config.json").read_text()) == json.loads((toy / "config.json").read_text())
    stored, copied = (load_file(path / "model.safetensors") for path in (toy, tmp_path / "copy"))
    assert stored.keys() == copied.keys() and {"toy.blocks.0.attention.inputs.key.bias"} < copied.keys()
    for name, tensor in stored.items():
        np.testing.assert_array_equal(copied[name], tensor)
    assert TOY not in FAMILIES and TOY not in MODEL_TYPES


def test_toy_trains_exports_and_passes_the_gate(directories: tuple[Path, Path], tmp_path: Path) -> None:
    train, dev = (
        tiny_finetuning.write_table(tmp_path / f"{name}.csv", tiny_finetuning.examples(24, seed))
        for seed, name in enumerate(("train", "dev"))
    )
    data = [f"--train-file={train}", f"--dev-file={dev}", "--label-column=label"]
    # Two steps.
    run = ["--epochs=1", "--batch-size=12", "--max-length=19", f"--output={tmp_path / 'run'}"]
    toy_runs.commands(
        "toy_family",
        ["finetune", f"--model={directories[1]}", *data, *run, "--head-pooling=first"],
        ["export", f"--model={tmp_path / 'run'}", "--lengths=19", f"--file={dev}", f"--output={tmp_path / 'bundle'}"],
        ["verify", tmp_path / "bundle"],
    )
    content = json.loads((tmp_path / "run/model/config.json").read_text())
    assert (content["model_type"], content["architectures"]) == (TOY, ["ToyBertForSequenceClassification"])
    assert json.loads((tmp_path / "bundle/verification.json").read_text())["passed"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parallel_blocks": True}, "parallel_blocks must be False; received True"),
        ({"hidden_size": 30}, "key 'hidden_size' is unknown"),
        ({"num_attention_heads": 7}, "width must be a multiple of num_attention_heads; received 30 and 7"),
        ({"model_type": "toybret"}, "received 'toybret' (did you mean 'toybert'?)"),
    ],
)
def test_toy_is_refused_in_one_line(
    changes: dict[str, object], message: str, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    content = json.loads((directories[1] / "config.json").read_text())
    tiny_finetuning.write_files(tmp_path / "model", tiny_finetuning.read_files(directories[1]))
    _write(tmp_path / "model/config.json", content | changes)
    (line,) = toy_runs.run("toy_family", READ, tmp_path / "model").splitlines()
    assert message in line


def _toy_name(name: str) -> str:
    for part, other in NAMES.items():
        name = name.replace(part, other)
    return name


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
