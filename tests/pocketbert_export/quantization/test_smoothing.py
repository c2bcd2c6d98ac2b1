"""SmoothQuant's scales in an int8 file of a tiny encoder with one large channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
import tiny_tasks

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.encoder import INPUT_NAMES
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.recipes import get_recipe
from pocketbert_runtime.bundles.length_buckets import bucket_by_length

LENGTHS = (11, 17)
# Matrices of at least 1,024 weights are quantized.
CONFIG = tiny.BERT.replace(
    hidden_size=48,
    embedding_size=48,
    num_attention_heads=3,
    head_size=16,
    intermediate_size=72,
    pooler="none",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pb.Model:
    """Each layer norm makes one channel 30 times as large as the others, as in trained encoders."""
    folder = tiny_finetuning.write_model(tmp_path_factory.mktemp("smoothing") / "model", CONFIG)
    model = pb.from_pretrained(folder, task=TaskConfig(kind="embedding"))
    for path, weight in model.weights_by_path().items():
        if path.endswith("norm.beta"):
            values = np.zeros(48, np.float32)
            values[13] = 30.0
            weight.assign(values)
    return model


def inputs_of(model: pb.Model) -> dict[str, np.ndarray]:
    inputs = model.tokenizer(tiny_tasks.TEXTS, max_length=LENGTHS[-1])
    return {name: np.asarray(inputs[name]) for name in INPUT_NAMES}


def error_of(model: pb.Model, content: bytes) -> float:
    """Root mean square difference from the float model, in all signatures."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter, squares = Interpreter(model_content=content), []
    for bucket in bucket_by_length(inputs_of(model), LENGTHS, model.tokenizer.pad_token_id):
        runner = interpreter.get_signature_runner(f"length_{bucket.length}")
        expected = model(bucket.inputs)["embedding"].numpy()
        for row in range(len(expected)):
            inputs: dict[str, Any] = {name: array[row : row + 1] for name, array in bucket.inputs.items()}
            squares.append(np.square(runner(**inputs)["embedding"] - expected[row]).mean())
    return float(np.sqrt(np.mean(squares)))


def test_smoothing_shrinks_the_rounding(model: pb.Model) -> None:
    recipe = get_recipe("dynamic_wi8")
    texts = bucket_by_length(inputs_of(model), LENGTHS, model.tokenizer.pad_token_id)
    plain, smoothed = to_tflite(model, LENGTHS, recipe), to_tflite(model, LENGTHS, recipe, texts=texts[:1])
    errors = [error_of(model, content) for content in (plain, smoothed)]
    assert 0 < errors[1] < 0.5 * errors[0]
    # A vector for each layer's input, no second copy of a matrix.
    assert len(smoothed) < len(plain) + 30_000


@pytest.mark.nightly
def test_smoothed_layers_run_per_tensor(model: pb.Model) -> None:
    recipe = get_recipe("dynamic_wi8")
    texts = bucket_by_length(inputs_of(model), LENGTHS, model.tokenizer.pad_token_id)
    content = to_tflite(model, LENGTHS, recipe, channelwise=False, texts=texts)
    assert error_of(model, content) < 0.5 * error_of(model, to_tflite(model, LENGTHS, recipe))
