"""The SavedModel that others' tools read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import networks
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from pocketbert.errors import UserError
from pocketbert_export.conversion.convert import write_saved_model
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations

# As in test_export_convert.
TOLERANCE = 2e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved_model") / "model"
    write_saved_model(optimize_graph(networks.network(networks.bert_config()), GraphOptimizations()), path, [5, 13])
    return path


def expected(length: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    model = networks.network(networks.bert_config())
    inputs = networks.inputs_of(model.config, length=length)
    return inputs, model(inputs)["logits"].numpy()


def test_every_signature_answers_as_the_model(folder: Path) -> None:
    loaded = tf.saved_model.load(str(folder))
    assert set(loaded.signatures) == {"length_5", "length_13", "serving_default"}
    for name, length in {"length_5": 5, "length_13": 13, "serving_default": 13}.items():
        inputs, logits = expected(length)
        row = {key: tf.constant(array[:1]) for key, array in inputs.items()}
        received = loaded.signatures[name](**row)["logits"].numpy()
        assert networks.relative(logits[:1], received) < TOLERANCE


@pytest.mark.nightly
def test_stock_tflite_convert_takes_it(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "stock.tflite"
    command = Path(sys.executable).with_name("tflite_convert")
    finished = subprocess.run(
        [command, f"--saved_model_dir={folder}", f"--output_file={output}"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    runner = Interpreter(model_path=str(output)).get_signature_runner("serving_default")
    inputs, logits = expected(13)
    for row in range(3):
        received = runner(**{name: array[row : row + 1] for name, array in inputs.items()})["logits"]
        assert networks.relative(logits[row : row + 1], received) < TOLERANCE


def test_nothing_is_overwritten_unasked(folder: Path) -> None:
    model = networks.network(networks.bert_config())
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(UserError, match="overwrite=True"):
        write_saved_model(model, folder, [5])
    with pytest.raises(UserError, match="received 99"):
        write_saved_model(model, folder, [99], overwrite=True)
    assert sorted(path.name for path in folder.rglob("*")) == before
