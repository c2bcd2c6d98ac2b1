"""Quantization-aware training: forward passes round like the exported file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from ai_edge_litert.interpreter import Interpreter
from safetensors.numpy import load_file

from pocketbert import cli
from pocketbert.layers.core import Dense
from pocketbert.layers.fake_quantization import FORMATS, FakeFormat
from pocketbert.layers.fake_quantization import round_blocks as rounded_blocks
from pocketbert_export.block_rounding import round_blocks
from pocketbert_export.int4_quantization import quantize_int4
from pocketbert_export.quantize import layers, quantize

# Both widths differ and are no multiples of 32.
INPUTS, OUTPUTS, TOKENS = 80, 70, 13


def dense(seed: int) -> Dense:
    layer = Dense(INPUTS, OUTPUTS)
    generator = np.random.default_rng(seed)
    layer.kernel.assign(generator.normal(size=[INPUTS, OUTPUTS]))
    layer.bias.assign(generator.normal(size=[OUTPUTS]))
    return layer


def tokens(seed: int) -> np.ndarray:
    """float32 [1, TOKENS, INPUTS] of very different sizes."""
    generator = np.random.default_rng(seed)
    scales = np.linspace(0.2, 3, TOKENS)[:, None]
    return (generator.normal(size=[1, TOKENS, INPUTS]) * scales + 0.3).astype(np.float32)


def float_file(layer: Dense) -> bytes:
    # Calibrated ranges belong to outputs of operators, so one stands in front of the layer.
    function = tf.function(lambda x: {"y": layer(tf.sin(x))}).get_concrete_function(
        tf.TensorSpec([1, TOKENS, INPUTS], tf.float32, name="x")
    )
    return tf.lite.TFLiteConverter.from_concrete_functions([function], layer).convert()


def run(content: bytes, x: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("recipe", FORMATS)
def test_dense_rounds_like_the_files_operator(recipe: FakeFormat) -> None:
    layer, x = dense(1), tokens(2)
    inputs = tf.sin(x)
    plain = layer(inputs).numpy()
    content = float_file(layer)
    if recipe == "dynamic_wi4":
        content = quantize_int4(content)
    else:
        ranges = {0: (float(tf.reduce_min(inputs)), float(tf.reduce_max(inputs))), 1: (plain.min(), plain.max())}
        assert list(layers(content)) == [1]
        content = quantize(content, {1: recipe}, ranges if recipe.startswith("static") else None)
    expected = run(content, x)
    layer.round_like(FORMATS[recipe])
    received = layer(inputs).numpy()
    if recipe == "dynamic_wi4":
        # Two scales of a block may have nearly the same error; float32 then decides otherwise than float64.
        difference, rounding = (np.sqrt(np.mean(np.square(each - expected))) for each in (received, plain))
        assert difference < 0.1 * rounding
        return
    # Sums in other orders; a few static outputs then fall into the next step.
    step = float(np.ptp(plain)) / 255 if recipe == "static_wi8_ai8" else 1e-4 * float(np.abs(plain).max())
    equal = [float(np.mean(np.abs(each - expected) < 0.1 * step)) for each in (received, plain)]
    assert equal[0] > 0.85
    assert equal[1] < 0.2
    assert np.abs(received - expected).max() <= 1.01 * step


def test_blocks_round_like_the_exporter() -> None:
    rows = np.random.default_rng(7).normal(size=[11, 96]).astype(np.float32)
    numbers, scales = round_blocks(rows)
    expected = numbers * np.repeat(scales.astype(np.float32), 32, axis=1)
    np.testing.assert_allclose(rounded_blocks(tf.constant(rows)).numpy(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("recipe", FORMATS)
def test_gradients_pass_through_rounding(recipe: FakeFormat) -> None:
    plain, rounding = Dense(48, 37), Dense(48, 37)
    generator = np.random.default_rng(8)
    kernel = generator.normal(size=[48, 37]).astype(np.float32)
    for each in (plain, rounding):
        each.kernel.assign(kernel)
    rounding.round_like(FORMATS[recipe])
    x = tf.constant(generator.normal(size=[5, 48]).astype(np.float32))
    found = []
    for each in (plain, rounding):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(each(x))
        found.append(tape.gradient(loss, [x, each.kernel]))
    for ours, theirs, scale in zip(found[1], found[0], (48**0.5, 5**0.5), strict=True):
        # Rounded values stand in for the others: int4 steps are at most a seventh of the largest of 32 values.
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=0.5 * scale)
        assert np.any(ours.numpy() != 0)


def test_small_matrices_stay_exact() -> None:
    layer = Dense(31, 33)
    layer.kernel.assign(np.random.default_rng(9).normal(size=[31, 33]))
    x = tf.constant(np.random.default_rng(10).normal(size=[3, 31]).astype(np.float32))
    before = layer(x).numpy()
    layer.round_like(FORMATS["dynamic_wi4"])
    np.testing.assert_array_equal(layer(x).numpy(), before)


def test_finetuning_rounds_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(90, seed=1))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(40, seed=2))
    flags = ["finetune", f"--model={model}", f"--train-file={train}", f"--dev-file={dev}", "--max-length=24"]
    flags += ["--epochs=2", "--batch-size=16", "--learning-rate=3e-3"]
    found = {}
    for name, extra in {"plain": [], "int4": ["--qat=dynamic_wi4"], "again": ["--qat=dynamic_wi4"]}.items():
        assert cli.main([*flags, f"--output={tmp_path / name}", *extra]) == 0
        found[name] = (tmp_path / name / "model" / "model.safetensors").read_bytes()
    assert found["int4"] == found["again"] != found["plain"]


def test_trained_head_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(90, seed=1))
    flags = ["finetune", f"--train-file={train}", f"--dev-file={train}", "--epochs=1", "--max-length=24"]
    assert cli.main([*flags, f"--model={model}", "--learning-rate=3e-3", f"--output={tmp_path / 'plain'}"]) == 0
    again = [*flags, f"--model={tmp_path / 'plain' / 'model'}", "--learning-rate=1e-9", "--qat=dynamic_wi8"]
    assert cli.main([*again, f"--output={tmp_path / 'rounded'}"]) == 0
    kept = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("plain", "rounded")]
    for name in kept[0]:
        # Six steps of 1e-9.
        np.testing.assert_allclose(kept[1][name], kept[0][name], atol=1e-7)
    assert "the head is new" not in capsys.readouterr().err
    assert cli.main([*flags, f"--model={model}", "--qat=dynamic_wi8", f"--output={tmp_path / 'new'}"]) == 0
    assert f"the head is new, because {model} has none with this task's labels" in capsys.readouterr().err


def test_recipes_without_quantized_arithmetic_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(90, seed=1))
    flags = ["finetune", f"--model={model}", f"--train-file={train}", f"--dev-file={train}"]
    for extra, message in {"--qat=float16": "float16", "--precision=bfloat16": "precision=float32"}.items():
        given = [extra] if extra.startswith("--qat") else [extra, "--qat=dynamic_wi8"]
        assert cli.main([*flags, f"--output={tmp_path / 'out'}", *given]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert not (tmp_path / "out").exists()
