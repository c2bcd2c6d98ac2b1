"""Quantization-aware training: forward passes round like the exported file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import networks
import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
from ai_edge_litert.interpreter import Interpreter
from safetensors.numpy import load_file

from pocketbert import cli
from pocketbert.layers.core import Dense, Embedding, LayerNorm
from pocketbert.layers.fake_quantization import Reader, equalization, fake_quantization
from pocketbert.model import Model
from pocketbert.recipes import RECIPES
from pocketbert.training.rounding import round_model
from pocketbert_export.quantization.block_rounding import round_blocks
from pocketbert_export.quantization.equalization import equalize
from pocketbert_export.quantization.int4_quantization import quantize_int4
from pocketbert_export.quantization.quantize import LayerFormat, layers, quantize
from pocketbert_export.quantization.static_operators import integer_operators
from pocketbert_export.tflite.graph import operator_name, read_model

ROUNDED = [recipe.name for recipe in RECIPES.values() if recipe.rounding]
FULL = fake_quantization("static_wi8_ai8_full")
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


@pytest.mark.parametrize("recipe", ROUNDED)
def test_dense_rounds_like_the_files_operator(recipe: str) -> None:
    layer, x = dense(1), tokens(2)
    inputs = tf.sin(x)
    plain = layer(inputs).numpy()
    content = float_file(layer)
    if recipe == "dynamic_wi4":
        content = quantize_int4(content)
    else:
        ranges = {0: (float(tf.reduce_min(inputs)), float(tf.reduce_max(inputs))), 1: (plain.min(), plain.max())}
        assert list(layers(content)) == [1]
        form = cast(LayerFormat, "static_wi8_ai8" if recipe == "static_wi8_ai8_full" else recipe)
        content = quantize(content, {1: form}, ranges if recipe.startswith("static") else None)
    expected = run(content, x)
    layer.round_like(fake_quantization(recipe))
    received = layer(inputs).numpy()
    if recipe == "dynamic_wi4":
        # Two scales of a block may have nearly the same error; float32 then decides otherwise than float64.
        difference, rounding = (np.sqrt(np.mean(np.square(outputs - expected))) for outputs in (received, plain))
        assert difference < 0.1 * rounding
        return
    # Sums in other orders; a few static outputs then fall into the next step.
    step = float(np.ptp(plain)) / 255 if recipe.startswith("static") else 1e-4 * float(np.abs(plain).max())
    equal = [float(np.mean(np.abs(outputs - expected) < 0.1 * step)) for outputs in (received, plain)]
    assert equal[0] > 0.85
    assert equal[1] < 0.2
    assert np.abs(received - expected).max() <= 1.01 * step


@pytest.mark.parametrize("recipe", ["dynamic_wi8", "static_wi8_ai8", "static_wi8_ai8_full"])
def test_embedding_rounds_like_the_files_operator(recipe: str) -> None:
    layer = Embedding(50, 40)
    values = np.random.default_rng(11).normal(size=[50, 40]) * np.linspace(0.5, 2, 50)[:, None] + 0.2
    layer.table.assign(values)
    ids = np.random.default_rng(12).integers(0, 50, [1, TOKENS], np.int32)
    plain = layer(ids).numpy()
    function = tf.function(lambda ids: {"y": layer(ids)}).get_concrete_function(tf.TensorSpec([1, TOKENS], tf.int32))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], layer)
    if recipe == "dynamic_wi8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        content = converter.convert()
    else:
        content = quantize(converter.convert(), {0: "static_wi8_ai8"}, {0: (values.min(), values.max())})
    layer.round_like(fake_quantization(recipe))
    step = np.ptp(values) / 255
    # The same numbers: float32 rounds sums of at most 256 steps by less than a thousandth of a step.
    np.testing.assert_allclose(layer(ids).numpy(), run(content, ids), atol=1e-3 * step)
    assert np.abs(plain - run(content, ids)).max() > 0.4 * step


def test_int4_embedding_rounds_like_the_exporter() -> None:
    layer = Embedding(50, 40)
    layer.table.assign(np.random.default_rng(11).normal(size=[50, 40]))
    numbers, scales = round_blocks(np.pad(layer.table.numpy(), [(0, 0), (0, 24)]), 32)
    expected = (numbers * np.repeat(scales.astype(np.float32), 32, axis=1))[:, :40]
    layer.round_like(fake_quantization("dynamic_wi4"))
    np.testing.assert_allclose(layer(np.arange(50)).numpy(), expected, rtol=1e-6, atol=1e-7)


@dataclasses.dataclass(frozen=True)
class Computed:
    """The outputs of an operator in a static file, and their quantization step."""

    values: np.ndarray
    step: float


def computed(function: Any, *inputs: np.ndarray, tokens: int | None = None) -> dict[str, list[Computed]]:
    """Runs operators in int8; operator → its outputs, in order. Attention logits have a range of their first `tokens`.

    Each input passes through arcsin and SIN, because calibrated ranges belong to outputs of operators.
    """
    signature = [tf.TensorSpec(array.shape, tf.float32, name=f"x{index}") for index, array in enumerate(inputs)]
    traced = tf.function(lambda *x: {"y": function(*(tf.sin(tensor) for tensor in x))}).get_concrete_function(
        *signature
    )
    content = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module()).convert()
    angles = [np.arcsin(array).astype(np.float32) for array in inputs]
    floats = [(name, output.values) for name, output in outputs_of_operators(content, angles)]
    formats: dict[int, LayerFormat] = {
        position: "static_wi8_ai8" for position, (name, _) in enumerate(floats) if name != "SIN"
    }
    chosen = integer_operators(content, formats)
    logits = {position for position, _ in chosen.masked.values()}
    measured = {}
    for position in chosen.measured:
        seen = floats[position][1][..., :tokens] if position in logits else floats[position][1]
        measured[position] = (min(float(seen.min()), 0.0), max(float(seen.max()), 0.0))
    tensors: dict[str, list[Computed]] = {}
    for name, output in outputs_of_operators(quantize(content, formats, chosen.ranges(measured)), angles):
        tensors.setdefault(name, []).append(output)
    return tensors


def outputs_of_operators(content: bytes, inputs: Sequence[np.ndarray]) -> list[tuple[str, Computed]]:
    interpreter = Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    for details, values in zip(sorted(interpreter.get_input_details(), key=itemgetter("name")), inputs, strict=True):
        interpreter.set_tensor(details["index"], values)
    interpreter.invoke()
    model = read_model(content)
    graph, operators = model.subgraphs[0], []
    for operator in graph.operators:
        values = interpreter.get_tensor(int(operator.outputs[0]))
        step, zero = interpreter_quantization(graph.tensors[operator.outputs[0]])
        operators.append(
            (operator_name(model, operator), Computed((values - np.float32(zero)) * np.float32(step), step))
        )
    return operators


def interpreter_quantization(tensor: Any) -> tuple[float, int]:
    if tensor.quantization is None or tensor.quantization.scale is None:
        return 1.0, 0
    return float(tensor.quantization.scale[0]), int(tensor.quantization.zeroPoint[0])


def on_grid(shape: Sequence[int], seed: int, low: int = -128, high: int = 127) -> np.ndarray:
    """Values that int8 represents exactly, below 1 in size."""
    numbers = np.random.default_rng(seed).integers(low, high + 1, shape)
    numbers.flat[:2] = low, high
    return numbers / 130


def test_attention_rounds_like_the_files_operators() -> None:
    queries, keys, values = on_grid([1, 2, 5, 8], 1), on_grid([1, 2, 7, 8], 2, -127), on_grid([1, 2, 7, 8], 3, -127)
    count = 5
    mask = np.where(np.arange(7) < count, 0.0, -0.9)[None, None, None]

    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) + 1000 * mask), v)

    tensors = computed(attention, queries, keys, values, mask, tokens=count)
    logits = tf.constant(queries @ np.swapaxes(keys, 2, 3), tf.float32)
    (masked,), (probs,) = tensors["ADD"], tensors["SOFTMAX"]
    received = {
        "masked": (FULL.masked(logits, tf.constant(1e9 * mask, tf.float32)), masked),
        # Reads what its predecessor in the file computed.
        "probabilities": (FULL.probabilities(tf.nn.softmax(masked.values)), probs),
    }
    for name, (rounded, in_file) in received.items():
        assert np.abs(rounded.numpy() - in_file.values).max() <= in_file.step, name
    assert np.all(received["probabilities"][0].numpy()[..., count:] == 0)
    assert np.abs(received["masked"][0].numpy() - masked.values).max() < 0.01 * masked.step
    assert np.abs(logits.numpy() - masked.values)[..., :count].max() > 0.4 * masked.step


def test_context_rounds_like_the_files_operator() -> None:
    probs, values = on_grid([1, 2, 5, 7], 8, 0), on_grid([1, 2, 7, 8], 9, -127)
    (in_file,) = computed(tf.matmul, probs, values)["BATCH_MATMUL"]
    # It is rounded where the next dense layer reads it.
    rounded = FULL.inputs(tf.constant(probs @ values, tf.float32)).numpy()
    # Both round to nearest; ties may go either way.
    assert np.abs(rounded - in_file.values).max() <= 1.001 * in_file.step


@pytest.mark.parametrize("reader", ["int8", "second factor"])
def test_factors_of_products_are_rounded_on_their_grids(reader: Reader) -> None:
    # keys and values have the zero point 0.
    x = tf.constant(on_grid([1, 9, 33], 5, -99, 127), tf.float32)
    rounded = FULL.outputs(x, reader).numpy()
    expected = 127 / 130 / 127 if reader == "second factor" else 226 / 130 / 255
    numbers = rounded / expected
    np.testing.assert_allclose(numbers, np.round(numbers), atol=1e-3)


@pytest.mark.parametrize(("name", "function"), [("GELU", tf.nn.gelu), ("TANH", tf.tanh)])
def test_functions_round_like_the_files_operators(name: str, function: Any) -> None:
    x = on_grid([1, 13, 40], 4)
    (in_file,) = computed(function, x)[name]
    rounded = FULL.inputs(function(tf.constant(x, tf.float32))).numpy()
    assert np.abs(rounded - in_file.values).max() <= in_file.step


def test_sums_round_like_the_files_operator_without_layer_norm() -> None:
    x, y = on_grid([1, 13, 40], 6), on_grid([1, 13, 40], 7, -100, 90)
    (in_file,) = computed(tf.add, x, y)["ADD"]
    total = tf.constant(x + y, tf.float32)
    rounded = fake_quantization("static_wi8_ai8_full", has_layer_norm=False).sums(total).numpy()
    # Both round to nearest; ties may go either way.
    assert np.abs(rounded - in_file.values).max() <= 1.001 * in_file.step
    np.testing.assert_array_equal(FULL.sums(total).numpy(), total.numpy())


def test_unequal_outputs_round_like_the_equalized_file() -> None:
    layer, x = dense(13), tokens(14)
    sizes = np.where(np.isin(np.arange(OUTPUTS), [3, 17]), 300, 1)
    layer.kernel.assign(layer.kernel * sizes)
    inputs = tf.sin(x)
    plain = layer(inputs).numpy()
    largest = np.abs(plain).max(axis=(0, 1))
    content = equalize(float_file(layer), {1: largest})
    factors, is_unequal = equalization(tf.constant(plain))
    assert bool(is_unequal)
    scaled = plain / factors
    limits = {0: inputs.numpy(), 1: scaled.numpy()}
    ranges = {position: (float(limit.min()), float(limit.max())) for position, limit in limits.items()}
    in_file = run(quantize(content, {1: "static_wi8_ai8"}, ranges), x)
    layer.round_like(fake_quantization("static_wi8_ai8"))
    steps = np.ptp(scaled) / 255 * factors.numpy()
    # As without equalization, with a step of its own for each channel.
    assert np.all(np.abs(layer(inputs).numpy() - in_file) <= 1.01 * steps)
    assert steps.max() > 100 * steps.min()


def test_layers_behind_a_norm_round_like_the_folded_file() -> None:
    norm, layer, x = LayerNorm(INPUTS, 1e-12), dense(15), tokens(16)
    generator = np.random.default_rng(17)
    norm.gamma.assign(generator.uniform(0.1, 3, INPUTS))
    norm.beta.assign(generator.normal(size=INPUTS))
    traced = tf.function(lambda x: {"y": layer(norm(x)) + norm(x)[..., :OUTPUTS]}).get_concrete_function(
        tf.TensorSpec([1, TOKENS, INPUTS], tf.float32, name="x")
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], layer)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    in_file = run(converter.convert(), x)
    layer.round_like(fake_quantization("dynamic_wi8"))
    errors = []
    for is_linked in (False, True):
        if is_linked:
            layer.reads(norm)
        errors.append(np.abs((layer(norm(x)) + norm(x)[..., :OUTPUTS]).numpy() - in_file).max())
    # Dynamic int8 rounds the same numbers; only sums in another order remain.
    assert errors[1] < 1e-3 * np.abs(in_file).max()
    assert errors[0] > 3 * errors[1]


@pytest.mark.parametrize(("width", "size"), [(96, 32), (128, 64), (150, 32), (165, 64)])
def test_int4_kernel_rounds_like_the_exporter(width: int, size: int) -> None:
    kernel = np.random.default_rng(7).normal(size=[width, 11]).astype(np.float32)
    numbers, scales = round_blocks(np.pad(kernel.T, [(0, 0), (0, -width % 32)]), size)
    expected = (numbers * np.repeat(scales.astype(np.float32), size, axis=1))[:, :width].T
    received = fake_quantization("dynamic_wi4").kernel(tf.constant(kernel)).numpy()
    np.testing.assert_allclose(received, expected, rtol=1e-6, atol=1e-7)


def test_first_third_of_the_blocks_has_small_int4_blocks() -> None:
    model = networks.network(networks.bert_config(num_layers=3, intermediate_size=64))
    round_model(model, "dynamic_wi4")
    for number, size in enumerate((32, 64, 64)):
        layer = model.encoder.layers_[number].feed_forwards[0].output_projection
        numbers, scales = round_blocks(layer.kernel.numpy().T, size)
        expected = (numbers * np.repeat(scales.astype(np.float32), size, axis=1)).T
        # Rows of the identity are exact in int8.
        received = (layer(tf.eye(64)) - layer.bias).numpy()
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recipe", ROUNDED)
def test_gradients_pass_through_rounding(recipe: str) -> None:
    plain, rounding = Dense(48, 37), Dense(48, 37)
    generator = np.random.default_rng(8)
    kernel = generator.normal(size=[48, 37]).astype(np.float32)
    for value in (plain, rounding):
        value.kernel.assign(kernel)
    rounding.round_like(fake_quantization(recipe))
    x = tf.constant(generator.normal(size=[5, 48]).astype(np.float32))
    gradients = []
    for entry in (plain, rounding):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(entry(x))
        gradients.append(tape.gradient(loss, [x, entry.kernel]))
    for gradient, expected_gradient, scale in zip(gradients[1], gradients[0], (48**0.5, 5**0.5), strict=True):
        # Rounded values stand in for the others: int4 steps are at most a seventh of the largest value of a block.
        np.testing.assert_allclose(gradient.numpy(), expected_gradient.numpy(), atol=0.5 * scale)
        assert np.any(gradient.numpy() != 0)


def test_small_matrices_stay_exact() -> None:
    layer = Dense(31, 33)
    layer.kernel.assign(np.random.default_rng(9).normal(size=[31, 33]))
    x = tf.constant(np.random.default_rng(10).normal(size=[3, 31]).astype(np.float32))
    before = layer(x).numpy()
    layer.round_like(fake_quantization("dynamic_wi4"))
    np.testing.assert_array_equal(layer(x).numpy(), before)


def test_finetuning_rounds_and_resumes_to_the_same_bits(tmp_path: Path, eager: None) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(48, seed=1))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(31, seed=2))
    flags = ["finetune", f"--model={model}", f"--train-file={train}", f"--dev-file={dev}", "--max-length=24"]
    flags += ["--epochs=1", "--batch-size=16", "--learning-rate=3e-3", "--head-start=random"]
    results = {}
    for name, extra in {"plain": [], "int4": ["--qat=dynamic_wi4"], "again": ["--qat=dynamic_wi4"]}.items():
        assert cli.main([*flags, f"--output={tmp_path / name}", *extra]) == 0
        results[name] = (tmp_path / name / "model" / "model.safetensors").read_bytes()
    assert results["int4"] == results["again"] != results["plain"]


@pytest.mark.nightly
def test_trained_head_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(90, seed=1))
    flags = ["finetune", f"--train-file={train}", f"--dev-file={train}", "--epochs=1", "--max-length=24"]
    assert cli.main([*flags, f"--model={model}", "--learning-rate=3e-3", f"--output={tmp_path / 'plain'}"]) == 0
    again = [*flags, f"--model={tmp_path / 'plain' / 'model'}", "--learning-rate=1e-9", "--qat=dynamic_wi8"]
    assert cli.main([*again, f"--output={tmp_path / 'rounded'}"]) == 0
    tensors = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("plain", "rounded")]
    for name in tensors[0]:
        # Six steps of 1e-9.
        np.testing.assert_allclose(tensors[1][name], tensors[0][name], atol=1e-7)
    assert "continuing with the model's head for classification (high, low)" in capsys.readouterr().err
    assert cli.main([*flags, f"--model={model}", "--qat=dynamic_wi8", f"--output={tmp_path / 'new'}"]) == 0
    assert "the head for classification (high, low) is new" in capsys.readouterr().err


@pytest.mark.nightly
def test_trained_model_passes_the_gate_of_its_recipe(tmp_path: Path) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(90, seed=1))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(40, seed=2))
    flags = [f"--model={model}", f"--train-file={train}", f"--dev-file={dev}", "--max-length=24", "--epochs=2"]
    flags += ["--learning-rate=3e-3", "--qat=static_wi8_ai8_full"]
    assert cli.main(["finetune", *flags, f"--output={tmp_path / 'run'}"]) == 0
    flags = [f"--model={tmp_path / 'run' / 'model'}", "--recipe=static_wi8_ai8_full", "--lengths=24", f"--file={dev}"]
    assert cli.main(["export", *flags, f"--calibration-file={train}", f"--output={tmp_path / 'bundle'}"]) == 0


FAMILIES = {
    "bert": tiny.BERT,
    "factorized": tiny.FACTORIZED_OUTPUT,
    "mobilebert": tiny.MOBILEBERT,
}


@pytest.mark.one_of_each
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("recipe", ROUNDED)
def test_rounding_families_stay_close(family: str, recipe: str) -> None:
    """Moving gamma and beta into the layers behind a norm must change nothing but the rounding."""
    config = FAMILIES[family]
    model = Model(config, (tiny_finetuning.TASK,))
    generator = np.random.default_rng(19)
    for path, variable in model.weights_by_path().items():
        scale = 1.0 if path.endswith(("gamma", "table")) else 0.3
        variable.assign(variable + generator.normal(0, 0.3 * scale, variable.shape))
    ids = generator.integers(1, config.vocab_size, [3, 9])
    mask = (np.arange(9) < np.array([[9], [6], [4]])).astype(np.int32)
    inputs = {"input_word_ids": (ids * mask).astype(np.int32), "input_mask": mask}
    request = {"hidden_states": tuple(range(1, config.num_layers + 1))}
    before = model.features(inputs, request)["hidden_states"]
    round_model(model, recipe)
    for plain, rounded in zip(before, model.features(inputs, request)["hidden_states"], strict=True):
        difference = (rounded - plain).numpy()[mask > 0]
        # int4 rounds each weight by up to a fourteenth of its block's largest; a wrong gamma changes all values.
        assert 0 < np.sqrt(np.mean(difference**2)) < 0.25 * np.sqrt(np.mean(plain.numpy()[mask > 0] ** 2))


def test_recipes_without_quantized_arithmetic_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_finetuning.write_model(tmp_path / "start")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(90, seed=1))
    flags = ["finetune", f"--model={model}", f"--train-file={train}", f"--dev-file={train}"]
    for extra, message in {"--qat=float16": "float16", "--precision=bfloat16": "precision=float32"}.items():
        arguments = [extra] if extra.startswith("--qat") else [extra, "--qat=dynamic_wi8"]
        assert cli.main([*flags, f"--output={tmp_path / 'out'}", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert not (tmp_path / "out").exists()
