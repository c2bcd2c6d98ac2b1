"""Static files for NPUs: every operator in int8, and int16 activations where int8 loses accuracy."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import bundle_folders
import networks
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from static_texts import LENGTHS, examples, sentences, table, with_unequal_channels

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients.mediapipe_files import write_task_files
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization.calibration import CalibrationTexts, choose_texts
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.integer_outputs import with_int8_outputs
from pocketbert_export.quantization.quantizers import QuantizedFile
from pocketbert_export.quantization.static_quantization import quantize_static
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.delegates import documented_shares
from pocketbert_export.tflite.graph import operator_name, read_model
from pocketbert_export.tflite.interpreter_process import real_outputs
from pocketbert_export.tflite.op_histogram import TYPE_NAMES

NETWORKS = {
    "bert": networks.bert_config(num_layers=2),
    "mobilebert": networks.mobilebert_config(hidden_size=36, intermediate_size=70),
    "efficientbert": networks.efficientbert_config("tanh(linear2_1(gelu(linear2_1(x))))"),
}
# Float operators of any file: the mask, and what converts to and from int8.
MASK = {"CAST", "RESHAPE", "STRIDED_SLICE", "MUL", "DEQUANTIZE"}


@pytest.fixture(scope="module")
def texts(small_model: Model) -> CalibrationTexts:
    assert small_model.tokenizer is not None
    return choose_texts(examples(sentences(48, seed=1)), None, small_model.tokenizer, LENGTHS)


@functools.cache
def float_file(family: str, small_model: Model) -> bytes:
    network = networks.network(NETWORKS[family], tokenizer=small_model.tokenizer)
    optimized = optimize_graph(network, GraphOptimizations().for_recipe(get_recipe("static_wi8_ai8_full")))
    return to_tflite(optimized, LENGTHS, get_recipe("float32"))


FullFile = Callable[[str], QuantizedFile]


@pytest.fixture(scope="module")
def full_file(small_model: Model, texts: CalibrationTexts) -> FullFile:
    """The static_wi8_ai8_full file of a family."""

    @functools.cache
    def quantized(family: str) -> QuantizedFile:
        options, recipe = CalibrationOptions(calibration_ranges="min_max"), get_recipe("static_wi8_ai8_full")
        return quantize_static(float_file(family, small_model), texts, options, recipe=recipe)

    return quantized


def output_types(content: bytes) -> Counter[tuple[str, str]]:
    """(operator, type of its output) → number in the first graph."""
    model = read_model(content)
    graph = model.subgraphs[0]
    return Counter(
        (operator_name(model, operator), TYPE_NAMES[graph.tensors[operator.outputs[0]].type])
        for operator in graph.operators
    )


@pytest.mark.one_of_each("bert", "mobilebert")
@pytest.mark.parametrize("family", NETWORKS)
def test_every_operator_but_norms_computes_in_int8(
    family: str, small_model: Model, full_file: FullFile, tmp_path: Path
) -> None:
    content, quantized = float_file(family, small_model), full_file(family)
    types = output_types(quantized.content)
    floats = {name for name, dtype in types if dtype == "float32"}
    if family == "mobilebert":
        assert floats <= MASK
        assert types["ADD", "int8"] > 10
    else:
        assert floats <= MASK | {"MEAN", "SUB", "RSQRT", "ADD"}
    for name in ("FULLY_CONNECTED", "BATCH_MATMUL", "SOFTMAX", "GATHER"):
        assert types[name, "int8"] == sum(
            count for (operator, _), count in output_types(content).items() if operator == name
        )
    assert quantized.dev_error < 0.2
    path = tmp_path / "model.tflite"
    path.write_bytes(quantized.content)
    left = {share.name: set(share.left) for share in documented_shares(path)}
    assert not left["NPU"]
    assert (left["int8 NPU"] - MASK > {"MEAN", "RSQRT"}) == (family != "mobilebert")


@pytest.mark.nightly
def test_partly_folded_norms_compute_in_int8(small_model: Model, texts: CalibrationTexts) -> None:
    network = networks.network(NETWORKS["mobilebert"], tokenizer=small_model.tokenizer)
    gamma = network.weights_by_path()["encoder.layers.0.feed_forwards.0.norm.gamma"]
    gamma.assign(np.where(np.arange(16) == 5, 0.0, gamma.numpy()))
    optimizations = GraphOptimizations().for_recipe(get_recipe("static_wi8_ai8_full"))
    content = to_tflite(optimize_graph(network, optimizations), LENGTHS, get_recipe("float32"))
    quantized = quantize_static(content, texts, recipe=get_recipe("static_wi8_ai8_full"))
    # The product on the residual, among others.
    assert output_types(quantized.content)["MUL", "int8"] > output_types(content)["MUL", "int8"]
    assert {name for name, dtype in output_types(quantized.content) if dtype == "float32"} <= MASK
    assert quantized.dev_error < 0.2


@pytest.mark.one_of_each("bert-12.0")
@pytest.mark.parametrize(("family", "margin"), [("bert", 12.0), ("mobilebert", 12.0), ("bert", 30.0), ("bert", 0.5)])
def test_padding_has_no_int8_probability(
    family: str, margin: float, small_model: Model, texts: CalibrationTexts, full_file: FullFile
) -> None:
    options, recipe = CalibrationOptions(padding_margin=margin), get_recipe("static_wi8_ai8_full")
    quantized = (
        full_file(family)
        if options == CalibrationOptions()
        else quantize_static(float_file(family, small_model), texts, options, recipe=recipe)
    )
    model = read_model(quantized.content)
    interpreter = Interpreter(model_content=quantized.content, experimental_preserve_all_tensors=True)
    generator = np.random.default_rng(3)
    count, length = 4, LENGTHS[1]
    inputs = {
        "input_word_ids": generator.integers(0, 40, [1, length], np.int32),
        "input_mask": (np.arange(length) < count).astype(np.int32)[None],
        "input_type_ids": np.zeros([1, length], np.int32),
    }
    interpreter.get_signature_runner(f"length_{length}")(**inputs)
    number = next(
        signatureDef.subgraphIndex
        for signatureDef in model.signatureDefs
        if signatureDef.signatureKey == f"length_{length}".encode()
    )
    graph = model.subgraphs[number]
    softmaxes = [operator for operator in graph.operators if operator_name(model, operator) == "SOFTMAX"]
    assert softmaxes
    for operator in softmaxes:
        probabilities = interpreter.get_tensor(int(operator.outputs[0]), number)
        zero = int(graph.tensors[operator.outputs[0]].quantization.zeroPoint[0])
        # e^-0.5 of the smallest real one.
        assert np.all(probabilities[..., count:] == zero) == (margin > 1)
        assert np.any(probabilities[..., :count] > zero + 64)


@pytest.mark.one_of_each("bert")
@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_keys_and_values_have_the_zero_point_0(family: str, full_file: FullFile) -> None:
    """XNNPACK in TFLite 2.21 ignores the zero point of a matrix product's second input."""
    model = read_model(full_file(family).content)
    for graph in model.subgraphs:
        products = [operator for operator in graph.operators if operator_name(model, operator) == "BATCH_MATMUL"]
        assert products
        for product in products:
            quantization = graph.tensors[product.inputs[1]].quantization
            assert quantization.zeroPoint.tolist() == [0]
            assert quantization.scale[0] > 0


def test_int16_serves_layers_that_int8_rounds_most(small_model: Model, texts: CalibrationTexts) -> None:
    optimized = optimize_graph(with_unequal_channels(small_model), GraphOptimizations(first_token_only=False))
    content = to_tflite(optimized, LENGTHS, get_recipe("float32"))
    files = {}
    for recipe in ("static_wi8_ai8", "static_wi8_ai16"):
        options = CalibrationOptions(equalize=False, calibration_ranges="min_max")
        files[recipe] = quantize_static(content, texts, options, get_recipe(recipe))
    assert files["static_wi8_ai16"].dev_error < 0.5 * files["static_wi8_ai8"].dev_error
    types = output_types(files["static_wi8_ai16"].content)
    assert 0 < types["FULLY_CONNECTED", "int16"]
    assert output_types(files["static_wi8_ai8"].content)["FULLY_CONNECTED", "int16"] == 0


@pytest.mark.one_of_each("static_wi8_ai8_full")
@pytest.mark.parametrize("recipe", ["static_wi8_ai8_full", "static_wi8_ai16"])
def test_bundle_passes_its_gate(recipe: str, small_directory: Path, tmp_path: Path) -> None:
    gate, calibration_table = (
        table(tmp_path / "gate.csv", sentences(40, 6)),
        table(tmp_path / "train.csv", sentences(70, 7)),
    )
    flags = [f"--model={small_directory}", f"--output={tmp_path / 'bundle'}", f"--recipe={recipe}", "--lengths=7,19"]
    flags += [
        f"--file={gate}",
        "--label-column=",
        f"--calibration-file={calibration_table}",
        "--calibration-examples=64",
    ]
    assert cli.main(["export", *flags]) == 0


@pytest.mark.nightly
def test_int8_outputs_have_the_values_of_float_outputs(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate, calibration_table = (
        table(tmp_path / "gate.csv", sentences(40, 6)),
        table(tmp_path / "train.csv", sentences(70, 7)),
    )
    flags = [f"--model={small_directory}", "--recipe=static_wi8_ai8_full", "--lengths=7,19", f"--file={gate}"]
    flags += ["--label-column=", f"--calibration-file={calibration_table}", "--calibration-examples=64"]
    for output_type in ("float32", "int8"):
        assert cli.main(["export", *flags, f"--output={tmp_path / output_type}", f"--output-type={output_type}"]) == 0
    bundles = [Bundle.open(tmp_path / output_type) for output_type in ("float32", "int8")]
    assert [bundle.output_type for bundle in bundles] == ["float32", "int8"]
    # In the file itself.
    model = read_model(bundles[1].model_path.read_bytes())
    for graph in model.subgraphs:
        assert [TYPE_NAMES[graph.tensors[index].type] for index in graph.outputs] == ["int8"]
        assert "DEQUANTIZE" != operator_name(model, graph.operators[-1])
    texts = sentences(20, 8)
    expected, received = (bundle.predictor().logits(texts) for bundle in bundles)
    np.testing.assert_array_equal(expected, received)
    assert len(np.unique(expected)) > 10
    assert cli.main(["bench", str(tmp_path / "int8"), "--quick"]) == 0
    assert cli.main(["bench", str(tmp_path / "int8"), "--quick", "--runtime=litert-compiled"]) == 1
    assert "use --runtime=litert" in capsys.readouterr().err
    assert cli.main(["verify", str(tmp_path / "int8"), f"--model={small_directory}"]) == 0
    # No larger than with an operator more.
    assert bundles[1].model_path.stat().st_size < bundles[0].model_path.stat().st_size
    with pytest.raises(UserError, match="need output_type='float32'; received int8"):
        write_task_files(bundles[1], tmp_path / "mediapipe", [])
    bundle_folders.describe_again(tmp_path / "int8", outputs=[{"name": "logits", "dtype": "float32"}])
    capsys.readouterr()
    assert cli.main(["verify", str(tmp_path / "int8"), f"--model={small_directory}"]) == 1
    assert "length_19's logits is int8, not float32" in capsys.readouterr().err


@pytest.mark.one_of_each("bert-span")
@pytest.mark.parametrize(
    ("family", "kind"), [("mobilebert", "classification"), ("bert", "span"), ("mobilebert", "token_classification")]
)
def test_int8_outputs_of_other_tasks(family: str, kind: str, small_model: Model, texts: CalibrationTexts) -> None:
    labels = ("O", "B-X", "I-X") if kind == "token_classification" else ("bad", "good") * (kind == "classification")
    task = TaskConfig(kind=kind, name="other", labels=labels)
    network = networks.network(NETWORKS[family], (task,), small_model.tokenizer)
    optimized = optimize_graph(network, GraphOptimizations().for_recipe(get_recipe("static_wi8_ai8_full")))
    content = to_tflite(optimized, LENGTHS, get_recipe("float32"))
    quantized = quantize_static(
        content, texts, CalibrationOptions(calibration_ranges="min_max"), get_recipe("static_wi8_ai8_full")
    )
    integers = with_int8_outputs(quantized.content)
    (bucket,) = [bucket for bucket in texts.dev if bucket.length == LENGTHS[1]]
    inputs = {name: rows[:1] for name, rows in bucket.inputs.items()}
    runners = [
        Interpreter(model_content=file_content).get_signature_runner(f"length_{LENGTHS[1]}")
        for file_content in (quantized.content, integers)
    ]
    expected, received = (runner(**inputs) for runner in runners)
    assert {values.dtype.name for values in received.values()} == {"int8"}
    for name, values in real_outputs(runners[1], received).items():
        np.testing.assert_array_equal(values, expected[name])


@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8", "static_wi8_ai8"])
def test_int8_outputs_need_a_recipe_with_int8_operators(
    recipe: str, small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--model={small_directory}", f"--output={tmp_path / 'bundle'}", f"--recipe={recipe}"]
    assert cli.main(["export", *flags, "--output-type=int8"]) == 2
    assert f"needs --recipe=static_wi8_ai8_full; received {recipe}" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_int8_outputs_need_an_int8_operator_at_the_end(
    tmp_path: Path, small_model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert small_model.tokenizer is not None
    encoder = Model(small_model.config, (), small_model.tokenizer)
    encoder.save_pretrained(tmp_path / "encoder")
    gate, calibration_table = (
        table(tmp_path / "gate.csv", sentences(40, 6)),
        table(tmp_path / "train.csv", sentences(70, 7)),
    )
    flags = [f"--model={tmp_path / 'encoder'}", f"--output={tmp_path / 'bundle'}", "--recipe=static_wi8_ai8_full"]
    flags += [
        f"--file={gate}",
        "--label-column=",
        f"--calibration-file={calibration_table}",
        "--output-type=int8",
        "--lengths=7",
    ]
    assert cli.main(["export", *flags]) == 2
    assert "last operator that computes in int8; received MUL" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()
