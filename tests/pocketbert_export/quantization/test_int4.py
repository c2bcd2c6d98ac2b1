"""int4 weights in blocks: the float graph that is prepared for them, and the quantized file."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from static_texts import examples, sentences

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.exporter import export
from pocketbert_export.quantization.blockwise import prepare_for_blocks
from pocketbert_export.quantization.calibration import choose_texts, second_moments
from pocketbert_export.quantization.smoothing import dense_layers
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.graph import operator_name, read_model, write_model
from pocketbert_export.tflite.op_histogram import TYPE_NAMES, count_ops

LENGTHS = (5, 13)
# Blocks of 32 pad widths of 40, 48, 56 and 70 and divide 96; blocks of 64 divide 64 and 56 with its padding.
NETWORKS = {
    "bert": networks.bert_config(num_layers=2),
    "whole blocks": networks.bert_config(hidden_size=64, embedding_size=64, intermediate_size=96, head_size=32),
    "mobilebert": networks.mobilebert_config(hidden_size=64, embedding_size=32, intermediate_size=70),
    "efficientbert": networks.efficientbert_config("tanh(linear2_1(gelu(linear2_1(x))))"),
}


def operators(file: schema.ModelT) -> list[schema.OperatorT]:
    return [operator for graph in file.subgraphs for operator in graph.operators]


def answers(content: bytes, inputs: dict[str, np.ndarray]) -> np.ndarray:
    runner = Interpreter(model_content=content).get_signature_runner(f"length_{inputs['input_mask'].shape[1]}")
    rows = range(len(inputs["input_mask"]))
    return np.concatenate(
        [runner(**{name: array[row : row + 1] for name, array in inputs.items()})["logits"] for row in rows]
    )


@pytest.fixture(
    scope="module",
    params=[
        "bert",
        "whole blocks",
        pytest.param("mobilebert", marks=pytest.mark.nightly),
        pytest.param("efficientbert", marks=pytest.mark.nightly),
    ],
)
def model(request: pytest.FixtureRequest) -> Model:
    return optimize_graph(networks.network(NETWORKS[request.param]), GraphOptimizations())


@pytest.fixture(scope="module")
def float_file(model: Model) -> bytes:
    return to_tflite(model, LENGTHS, get_recipe("float32"))


@pytest.fixture(scope="module")
def int4_file(model: Model) -> bytes:
    return to_tflite(model, LENGTHS, get_recipe("dynamic_wi4"))


def matrices(file: schema.ModelT) -> list[tuple[schema.SubGraphT, schema.TensorT]]:
    """Graph and constant of every FULLY_CONNECTED and EMBEDDING_LOOKUP in the first graph, in their order."""
    graph = file.subgraphs[0]
    tensors = [
        graph.tensors[operator.inputs[1]]
        for operator in graph.operators
        if operator_name(file, operator) in ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")
    ]
    return [(graph, tensor) for tensor in tensors if file.buffers[tensor.buffer].data is not None]


def content_of(file: schema.ModelT, tensor: schema.TensorT, dtype: type) -> np.ndarray:
    return np.frombuffer(bytes(file.buffers[tensor.buffer].data), dtype)


def dequantized(file: schema.ModelT, graph: schema.SubGraphT, tensor: schema.TensorT) -> tuple[np.ndarray, np.ndarray]:
    """Numbers from -8 to 7, and the step of each, both in the shape of the matrix."""
    rows = int(tensor.shape[0])
    packed = content_of(file, tensor, np.uint8)
    # Two's complement, the first of two numbers in the lower half of a byte.
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(rows, -1).astype(np.int8)
    details = tensor.quantization.details
    scales = content_of(file, graph.tensors[details.scales], np.float16).reshape(rows, -1).astype(np.float32)
    assert scales.shape[1] * details.blockSize == numbers.shape[1]
    return np.where(numbers > 7, numbers - 16, numbers), np.repeat(scales, details.blockSize, axis=1)


def test_prepared_graph_computes_the_same(model: Model, float_file: bytes) -> None:
    prepared = prepare_for_blocks(float_file)
    for length in LENGTHS:
        inputs = networks.inputs_of(model.config, length=length)
        # Zeros are added to sums; only their order may differ.
        assert networks.relative(answers(float_file, inputs), answers(prepared, inputs)) < 1e-5


def test_every_weight_is_within_half_a_step_or_clipped(float_file: bytes, int4_file: bytes) -> None:
    source, quantized = read_model(prepare_for_blocks(float_file)), read_model(int4_file)
    count = 0
    for (_, before), (graph, after) in zip(matrices(source), matrices(quantized), strict=True):
        values = content_of(source, before, np.float32)
        if TYPE_NAMES[after.type] != "int4":
            assert values.size < 1024
            continue
        count += 1
        numbers, steps = dequantized(quantized, graph, after)
        values = values.reshape(numbers.shape)
        error = np.abs(numbers * steps - values)
        is_clipped = (numbers == np.where(values > 0, 7, -8)) & (np.abs(values) > np.abs(numbers * steps))
        assert np.all((error <= steps * 0.5 * (1 + 1e-5) + 1e-7) | is_clipped)
        # The squared error of a block is at most that of rounding with the largest weight as 7.
        size = after.quantization.details.blockSize
        blocks = values.reshape(-1, size)
        plain = np.maximum(np.abs(blocks).max(axis=1, keepdims=True) / 7, 1e-12)
        plain_error = np.square(np.round(blocks / plain) * plain - blocks).sum(axis=1)
        # The scale's rounding to float16 may add 2^-11 of 7 steps to each weight.
        allowance = size * np.square(7 * 2**-11 * plain[:, 0]) + 0.05 * plain_error
        assert np.all(np.square(error).reshape(-1, size).sum(axis=1) <= plain_error + allowance)
    assert count >= 6


def test_late_dense_layers_have_blocks_of_64_where_they_need_no_more_padding(int4_file: bytes) -> None:
    file = read_model(int4_file)
    for graph in file.subgraphs:
        sizes: dict[str, list[tuple[int, int]]] = {"FULLY_CONNECTED": [], "EMBEDDING_LOOKUP": []}
        for operator in graph.operators:
            name = operator_name(file, operator)
            if name in sizes and TYPE_NAMES[(matrix := graph.tensors[operator.inputs[1]]).type] == "int4":
                sizes[name].append((int(matrix.shape[1]), matrix.quantization.details.blockSize))
        # A small table stays float32.
        assert {size for _, size in sizes["EMBEDDING_LOOKUP"]} <= {32}
        dense = sizes["FULLY_CONNECTED"]
        first = len(dense) // 3
        assert first > 0
        assert {size for _, size in dense[:first]} == {32}
        assert all(size == (32 if width in (32, 96) else 64) for width, size in dense[first:])


def test_runtime_reads_the_blocks_as_stored(model: Model, float_file: bytes, int4_file: bytes) -> None:
    source, quantized = read_model(prepare_for_blocks(float_file)), read_model(int4_file)
    for (_, before), (graph, after) in zip(matrices(source), matrices(quantized), strict=True):
        if TYPE_NAMES[after.type] == "int4":
            numbers, steps = dequantized(quantized, graph, after)
            values = (numbers * steps).astype(np.float32)
            source.buffers[before.buffer].data = np.frombuffer(values.tobytes(), np.uint8)
    inputs = networks.inputs_of(model.config, rows=9, length=13)
    expected, received = answers(write_model(source), inputs), answers(int4_file, inputs)
    # Only the activations are rounded, to 8 bits: less than the bound of dynamic_wi8.
    assert np.sqrt(np.mean((received - expected) ** 2)) < 0.15 * np.sqrt(np.mean(expected**2))
    # The rounding of the weights is larger.
    assert networks.relative(answers(float_file, inputs), received) > networks.relative(expected, received)


def test_versions_make_old_runtimes_refuse(model: Model, int4_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(int4_file)
    table = {"EMBEDDING_LOOKUP": 4} if model.config.vocab_size * model.config.embedding_size >= 1024 else {}
    needed = {"FULLY_CONNECTED": 12} | table
    assert count_ops(path).needed_versions == needed
    int4_graph = read_model(int4_file)
    versions = {
        operator_name(int4_graph, operator): int4_graph.operatorCodes[operator.opcodeIndex].version
        for operator in operators(int4_graph)
    }
    assert {name: versions[name] for name in needed} == needed


@pytest.mark.nightly
def test_lengths_share_int4_weights_and_scales() -> None:
    model = networks.network(networks.bert_config(num_layers=1))
    one, two = (len(to_tflite(model, lengths, get_recipe("dynamic_wi4"))) for lengths in ((13,), LENGTHS))
    float_one, float_two = (len(to_tflite(model, lengths, get_recipe("float32"))) for lengths in ((13,), LENGTHS))
    # The second length adds operators, names and positions, but neither weights (9,000 bytes) nor scales (1,000).
    assert two - one < float_two - float_one + 8192


def test_bundle_passes_its_gate(small_directory: Path, tmp_path: Path) -> None:
    bundle = export(small_directory, tmp_path / "bundle", recipe="dynamic_wi4", lengths=(7, 19))
    assert bundle.recipe == "dynamic_wi4"


def test_old_runtime_is_refused_before_conversion(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="FULLY_CONNECTED"):
        get_recipe("dynamic_wi4", "tflite-2.16")
    output = tmp_path / "bundle"
    flags = [f"--model={small_directory}", f"--output={output}", "--recipe=dynamic_wi4", "--runtime=tflite-2.16"]
    assert cli.main(["export", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "FULLY_CONNECTED" in error
    assert not output.exists()


def test_calibration_sees_every_channel_of_dense_inputs(small_model: Model) -> None:
    # Rows of whole blocks get no padding, so dense layers read the context of the last layer's attention.
    model = networks.network(NETWORKS["whole blocks"], tokenizer=small_model.tokenizer)
    assert model.tokenizer is not None
    content = to_tflite(optimize_graph(model, GraphOptimizations()), LENGTHS, get_recipe("float32"))
    texts = choose_texts(examples(sentences(48, seed=1)), None, model.tokenizer, LENGTHS)
    graph = read_model(content).subgraphs[0]
    moments = second_moments(content, texts.measured, dense_layers(content))
    assert moments
    for position, moment in moments.items():
        inputs = int(graph.tensors[graph.operators[position].inputs[1]].shape[1])
        assert moment.shape == (inputs, inputs)
