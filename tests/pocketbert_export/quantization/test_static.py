"""Static int8: calibration texts, ranges, equalization, and the quantized file."""

from __future__ import annotations

import json
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
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization import calibration
from pocketbert_export.quantization.calibration import CalibrationTexts, RangeMethod, choose_texts
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.equalization import equalize, lone_inputs, unequal
from pocketbert_export.quantization.quantize import layers
from pocketbert_export.quantization.static_quantization import quantize_static
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.graph import operator_name, producer_positions, read_model
from pocketbert_export.tflite.op_histogram import TYPE_NAMES


@pytest.fixture(scope="module")
def texts(small_model: Model) -> CalibrationTexts:
    assert small_model.tokenizer is not None
    return choose_texts(examples(sentences(48, seed=1)), None, small_model.tokenizer, LENGTHS)


@pytest.fixture(scope="module")
def model(small_model: Model) -> Model:
    # The last layer computes one token only; here every token counts.
    return optimize_graph(with_unequal_channels(small_model), GraphOptimizations(first_token_only=False))


@pytest.fixture(scope="module")
def float_file(model: Model) -> bytes:
    return to_tflite(model, LENGTHS, get_recipe("float32"))


def dense_positions(content: bytes) -> list[int]:
    return [position for position, name in layers(content).items() if name == "FULLY_CONNECTED"]


def test_texts_are_drawn_by_seed_without_the_gates(small_model: Model) -> None:
    tokenizer = small_model.tokenizer
    assert tokenizer is not None
    training_texts, gate = examples(sentences(90, seed=2)), examples(sentences(90, seed=2)[:30])
    choices = [choose_texts(training_texts, gate, tokenizer, LENGTHS, most=40, seed=seed) for seed in (0, 0, 1)]
    assert choices[0].digest == choices[1].digest != choices[2].digest
    assert len(choices[0].data) == 40
    rows = [sum(len(bucket.indices) for bucket in buckets) for buckets in (choices[0].measured, choices[0].dev)]
    assert rows == [30, 10]
    everything = choose_texts(training_texts, gate, tokenizer, LENGTHS, most=1000)
    assert len(everything.data) == 60
    counts = [bucket.inputs["input_mask"].sum(axis=1) for bucket in everything.measured]
    # Every text runs in the shortest signature that fits.
    assert [bucket.length for bucket in everything.measured] == [7, 19]
    assert counts[0].max() <= 7 < counts[1].min()


def test_too_few_texts_are_refused_with_their_number(small_model: Model) -> None:
    tokenizer = small_model.tokenizer
    assert tokenizer is not None
    few_texts = sentences(50, seed=3)
    with pytest.raises(UserError, match="at least 32 different texts.* has 31, and 19 that the gate uses"):
        choose_texts(examples(few_texts), examples(few_texts[:19]), tokenizer, LENGTHS)
    with pytest.raises(UserError, match="has 31;"):
        choose_texts(examples([*few_texts[:31], *few_texts[:31]]), None, tokenizer, LENGTHS)


def test_channel_maxima_cover_real_tokens_only(model: Model, float_file: bytes, texts: CalibrationTexts) -> None:
    maxima = calibration.largest_per_channel(float_file, texts.measured, dense_positions(float_file))
    expected = {}
    for name in ("queries", "keys", "values"):
        largest = np.zeros(model.config.attention_size)
        for bucket in texts.measured:
            values = model.encoder.features(bucket.inputs, [name])[name][0].numpy()
            largest = np.maximum(largest, np.abs(values[bucket.inputs["input_mask"] > 0]).max(axis=0))
        expected[name] = largest
    for name, largest in expected.items():
        # TFLite scales the queries inside their weights.
        scale = model.config.head_size**-0.5 if name == "queries" else 1.0
        matches = [
            np.allclose(sizes, largest * factor, rtol=1e-4)
            for sizes in maxima.values()
            if len(sizes) == len(largest)
            for factor in (1.0, scale)
        ]
        assert any(matches), name


@pytest.mark.parametrize("seed", [4, 5])
def test_least_error_range_is_near_the_best_of_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Normal values with a heavy tail on one side, like the output of gelu.
    values = np.concatenate([generator.normal(size=20_000), generator.exponential(4, 60) + 5])
    low, high = values.min(), values.max()
    counts, _ = np.histogram(values, bins=2048, range=(low, high))

    def error(start: float, stop: float) -> float:
        step = (stop - start) / 15
        zero = np.round(-start / step)
        return float(np.mean(((np.clip(np.round(values / step) + zero, 0, 15) - zero) * step - values) ** 2))

    best = min(error(low * a, high * b) for a in np.linspace(0.05, 1, 60) for b in np.linspace(0.05, 1, 60))
    received = error(*calibration.least_error_range(counts, low, high, levels=16))
    assert received < 1.1 * best
    assert received < 0.5 * error(low, high)


def test_percentile_range_leaves_out_the_outermost_values() -> None:
    values = np.concatenate([np.linspace(-1, 3, 100_000), [-50.0, 90.0]])
    counts, _ = np.histogram(values, bins=2048, range=(-50, 90))
    low, high = calibration.percentile_range(counts, -50, 90)
    # A bin is 0.07 wide.
    assert -1.07 <= low <= -0.93
    assert 2.93 <= high <= 3.07


def test_equalized_file_gives_the_same_bits(model: Model, float_file: bytes, texts: CalibrationTexts) -> None:
    largest = calibration.largest_per_channel(float_file, texts.measured, dense_positions(float_file))
    equalized = equalize(float_file, largest)
    assert len(read_model(equalized).subgraphs[0].operators) > len(read_model(float_file).subgraphs[0].operators)
    for before, after in zip(
        calibration.outputs_of(float_file, texts.dev),
        calibration.outputs_of(equalized, texts.dev),
        strict=True,
    ):
        np.testing.assert_array_equal(before["logits"], after["logits"])
    scaled = calibration.largest_per_channel(equalized, texts.measured, dense_positions(equalized))
    # Every channel reaches more than half of its layer's range.
    assert all(sizes[sizes > 0].min() > 0.5 * sizes.max() * (1 - 1e-6) for sizes in scaled.values())


def test_equalized_inputs_give_the_same_bits_and_differ_less(float_file: bytes, texts: CalibrationTexts) -> None:
    graph = read_model(float_file).subgraphs[0]
    written = {int(graph.operators[position].outputs[0]): position for position in lone_inputs(float_file)}
    names = {operator_name(read_model(float_file), graph.operators[position]) for position in written.values()}
    assert "GELU" in names
    assert not names & {"FULLY_CONNECTED", "GATHER"}
    largest = calibration.largest_per_channel(float_file, texts.measured, list(written.values()))
    # Both ends of the same layer.
    both = dense_positions(float_file)
    largest |= calibration.largest_per_channel(float_file, texts.measured, both)
    equalized = equalize(float_file, largest)
    for before, after in zip(
        calibration.outputs_of(float_file, texts.dev), calibration.outputs_of(equalized, texts.dev), strict=True
    ):
        np.testing.assert_array_equal(before["logits"], after["logits"])
    after_graph = read_model(equalized).subgraphs[0]
    producers = producer_positions(after_graph)
    source_of = {
        written[source]: producers[int(after_graph.operators[now].inputs[0])]
        for now, before in zip(dense_positions(equalized), both, strict=True)
        if (source := int(graph.operators[before].inputs[0])) in written
    }
    assert source_of
    scaled = calibration.largest_per_channel(equalized, texts.measured, list(source_of.values()))
    for position, source in source_of.items():
        sizes, used = largest[position], largest[position] > 0
        share, equal_share = (channel_sizes[used] / channel_sizes.max() for channel_sizes in (sizes, scaled[source]))
        # The root of the share, rounded by less than a factor of two.
        assert np.all(equal_share > 0.5 * np.sqrt(share) * (1 - 1e-6))
        assert np.all(equal_share <= np.sqrt(share) * (1 + 1e-6))


@pytest.mark.nightly
def test_equalized_inputs_lower_the_error_of_a_large_gelu_channel(small_model: Model, texts: CalibrationTexts) -> None:
    model = Model(small_model.config, small_model.tasks, small_model.tokenizer)
    weights = model.weights_by_path()
    for variable, source in zip(weights.values(), small_model.weights_by_path().values(), strict=True):
        variable.assign(source)
    kernels = [weights[f"encoder.layers.0.feed_forwards.0.{name}.kernel"] for name in ("intermediate", "output")]
    channel = np.arange(56) == 5
    # A large channel that matters as much as the others.
    kernels[0].assign(kernels[0] * np.where(channel, 100.0, 1.0))
    kernels[1].assign(kernels[1] * np.where(channel, 0.01, 1.0)[:, None])
    content = to_tflite(optimize_graph(model, GraphOptimizations()), LENGTHS, get_recipe("float32"))
    outputs_only = calibration.largest_per_channel(content, texts.measured, dense_positions(content))
    inputs_too = outputs_only | calibration.largest_per_channel(content, texts.measured, lone_inputs(content))
    expected = calibration.outputs_of(content, texts.dev)
    options = CalibrationOptions(calibration_ranges="min_max", equalize=False)
    errors = []
    for network in (unequal(outputs_only), unequal(inputs_too)):
        file = quantize_static(equalize(content, network), texts, options).content
        errors.append(calibration.relative_error(expected, calibration.outputs_of(file, texts.dev)))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.nightly
def test_layers_without_bias_are_equalized(model: Model, texts: CalibrationTexts) -> None:
    copy_of_model = Model(model.config, model.tasks, model.tokenizer)
    for (path, variable), source in zip(
        copy_of_model.weights_by_path().items(), model.weights_by_path().values(), strict=True
    ):
        # The converter drops a bias of zeros.
        variable.assign(source * 0 if path.endswith("bias") else source)
    content = to_tflite(copy_of_model, LENGTHS, get_recipe("float32"))
    largest = calibration.largest_per_channel(content, texts.measured, dense_positions(content))
    equalized = equalize(content, largest)
    for before, after in zip(
        calibration.outputs_of(content, texts.dev), calibration.outputs_of(equalized, texts.dev), strict=True
    ):
        np.testing.assert_array_equal(before["logits"], after["logits"])


def test_equalization_halves_the_error_of_unequal_channels(float_file: bytes, texts: CalibrationTexts) -> None:
    with_it, without = (
        quantize_static(float_file, texts, CalibrationOptions(equalize=equalize, calibration_ranges="min_max"))
        for equalize in (True, False)
    )
    assert with_it.dev_error < 0.5 * without.dev_error
    assert with_it.dev_error < 0.2


@pytest.mark.one_of_each("bert")
@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_dense_layers_compute_in_int8_with_calibrated_ranges(
    family: str, small_model: Model, texts: CalibrationTexts
) -> None:
    config = (
        networks.bert_config() if family == "bert" else networks.mobilebert_config(hidden_size=36, intermediate_size=70)
    )
    model = optimize_graph(networks.network(config, tokenizer=small_model.tokenizer), GraphOptimizations())
    options = CalibrationOptions(calibration_ranges="min_max", equalize=False)
    float_file = to_tflite(model, LENGTHS, get_recipe("float32"))
    quantized = quantize_static(float_file, texts, options)
    graph = read_model(float_file).subgraphs[0]
    producers = producer_positions(graph)
    measured = []
    for position in dense_positions(float_file):
        measured += [producers[int(graph.operators[position].inputs[0])], position]
    ranges = calibration.ActivationHistograms(float_file, texts.measured, measured).ranges("min_max")
    limits = [ranges[position] for position in measured]
    file = read_model(quantized.content)
    for graph in file.subgraphs:
        types = []
        for operator in graph.operators:
            if operator_name(file, operator) != "FULLY_CONNECTED":
                continue
            source, weight, output = (graph.tensors[index] for index in (*operator.inputs[:2], operator.outputs[0]))
            if weight.shape[0] * weight.shape[1] < 1024:
                continue
            assert [TYPE_NAMES[tensor.type] for tensor in (source, weight, output)] == ["int8"] * 3
            assert len(weight.quantization.scale) == weight.shape[0]
            types += [float(tensor.quantization.scale[0]) for tensor in (source, output)]
        np.testing.assert_allclose(types, [(high - low) / 255 for low, high in limits], rtol=1e-4)
        others = [operator for operator in graph.operators if operator_name(file, operator) == "SOFTMAX"]
        assert others
        assert all(TYPE_NAMES[graph.tensors[other.outputs[0]].type] == "float32" for other in others)
    outputs = Interpreter(model_content=quantized.content).get_signature_runner("length_7").get_output_details()
    assert outputs["logits"]["dtype"] == np.float32


@pytest.mark.nightly
def test_bundle_records_its_calibration(small_directory: Path, tmp_path: Path) -> None:
    gate, calibration_table = (
        table(tmp_path / "gate.csv", sentences(40, 6)),
        table(tmp_path / "train.csv", sentences(70, 7)),
    )
    output = tmp_path / "bundle"
    flags = [f"--model={small_directory}", f"--output={output}", "--recipe=static_wi8_ai8", "--lengths=7,19"]
    flags += [
        f"--file={gate}",
        "--label-column=",
        f"--calibration-file={calibration_table}",
        "--calibration-examples=64",
    ]
    assert cli.main(["export", *flags]) == 0
    record = json.loads((output / "bundle.json").read_text(encoding="utf-8"))["calibration"]
    assert record["texts"] == 64
    assert record["method"] in calibration.METHODS
    bundle_folders.describe_again(output, recipe="dynamic_wi8")
    with pytest.raises(UserError, match="calibration must not be recorded for the recipe dynamic_wi8"):
        Bundle.open(output)


def test_bad_calibration_is_refused_in_one_line(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate, few = table(tmp_path / "gate.csv", sentences(40, 8)), table(tmp_path / "few.csv", sentences(31, 9))
    good = table(tmp_path / "good.csv", sentences(40, 10))
    output = tmp_path / "bundle"
    cases = {
        "that the gate uses": ["--recipe=static_wi8_ai8", f"--calibration-file={gate}"],
        "has 31;": ["--recipe=static_wi8_ai8", f"--calibration-file={few}"],
        "received none; pass --calibration-file": ["--recipe=static_wi8_ai8"],
        "at least 32; received 31": [
            "--recipe=static_wi8_ai8",
            f"--calibration-file={good}",
            "--calibration-examples=31",
        ],
        "--padding-margin must be positive; received 0.0": [
            "--recipe=static_wi8_ai8_full",
            f"--calibration-file={good}",
            "--padding-margin=0",
        ],
        "leave --calibration-file out": ["--recipe=float32", f"--calibration-file={good}"],
    }
    for message, flags in cases.items():
        common = [f"--model={small_directory}", f"--output={output}", f"--file={gate}", "--label-column="]
        assert cli.main(["export", *common, *flags]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        assert message in error
        assert not output.exists()


@pytest.mark.parametrize("ranges", ["min_max", "percentile", "mse"])
def test_outputs_keep_their_mean(float_file: bytes, texts: CalibrationTexts, ranges: RangeMethod) -> None:
    # Without equalization, a large channel shifts what the others round to.
    options = CalibrationOptions(calibration_ranges=ranges, equalize=False)
    quantized = quantize_static(float_file, texts, options).content
    answers = [
        np.concatenate([outputs["logits"] for outputs in calibration.outputs_of(content, texts.measured)])
        for content in (float_file, quantized)
    ]
    difference = answers[1] - answers[0]
    assert np.all(np.abs(difference.mean(axis=0)) <= difference.std(axis=0) / np.sqrt(len(difference)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "task",
    [
        TaskConfig(kind="regression"),
        TaskConfig(kind="span"),
        TaskConfig(kind="token_classification", labels=("O", "B-X", "I-X")),
        TaskConfig(kind="embedding"),
    ],
    ids=lambda task: task.kind,
)
def test_files_of_all_output_shapes_are_calibrated(task: TaskConfig, texts: CalibrationTexts) -> None:
    model = optimize_graph(networks.network(networks.bert_config(), [task]), GraphOptimizations())
    content = to_tflite(model, LENGTHS, get_recipe("float32"))
    assert quantize_static(content, texts).dev_error < 0.2
