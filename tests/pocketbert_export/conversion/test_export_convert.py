"""What the converted file holds and answers."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import converted_files
import flatbuffers
import networks
import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from pocketbert import cli, from_preset
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.presets import preset
from pocketbert.recipes import RECIPES
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.conversion import convert
from pocketbert_export.conversion.convert import to_tflite, write_saved_model
from pocketbert_export.conversion.graph_optimization import GRAPH_OPTIMIZATIONS, optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.exporter import export
from pocketbert_export.recipes import configure, get_recipe
from pocketbert_export.tflite.graph import operator_name, read_model, share_quantization, split_evenly
from pocketbert_export.tflite.interpreter_process import delegate
from pocketbert_export.tflite.op_histogram import OpHistogram, count_ops
from pocketbert_export.tflite.signatures import check_lengths

LENGTHS = (5, 13)
FULLY_CONNECTED = schema.BuiltinOperator.FULLY_CONNECTED
# Float32 rounding (6e-8) in other orders of summation and another exp and erf, grown by unnormalized residuals over
# the blocks; wrong maths is off by fractions.
TOLERANCE = 2e-4
NONE = GraphOptimizations(**dict.fromkeys(GRAPH_OPTIMIZATIONS, False))


def answers(content: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    length = inputs["input_mask"].shape[1]
    runner = Interpreter(model_content=content).get_signature_runner(f"length_{length}")
    rows = [
        runner(**{name: array[row : row + 1] for name, array in inputs.items()})
        for row in range(len(inputs["input_mask"]))
    ]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def histogram(content: bytes, folder: Path) -> OpHistogram:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return count_ops(path)


@pytest.fixture(scope="module", params=["bert", "mobilebert"])
def model(request: pytest.FixtureRequest) -> Model:
    return networks.network(networks.bert_config() if request.param == "bert" else networks.mobilebert_config())


@pytest.mark.one_of_each("bert")
def test_float32_matches_model_at_every_length(model: Model) -> None:
    content = to_tflite(optimize_graph(model, GraphOptimizations()), LENGTHS, get_recipe("float32"))
    for length in LENGTHS:
        inputs = networks.inputs_of(model.config, length=length)
        with padding_after_texts(model):
            expected = model(inputs)["logits"].numpy()
        assert networks.relative(expected, answers(content, inputs)["logits"]) < TOLERANCE


@pytest.mark.one_of_each("dynamic_wi8")
@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8"])
def test_file_is_that_of_the_public_converter(recipe: str, tmp_path: Path) -> None:
    signatures = [f"length_{length}" for length in LENGTHS]
    write_saved_model(networks.network(networks.bert_config()), tmp_path / "saved", LENGTHS)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), signature_keys=signatures)
    configure(converter, get_recipe(recipe))
    content = convert._convert_saved_model(tmp_path / "saved", signatures, get_recipe(recipe))
    assert content == converter.convert()


@pytest.mark.one_of_each("None", "task1")
@pytest.mark.parametrize("task", [None, TaskConfig(kind="span"), TaskConfig(kind="regression")])
def test_outputs_keep_names_and_shapes(task: TaskConfig | None) -> None:
    model = networks.network(networks.bert_config(), [task] if task else [])
    content = to_tflite(optimize_graph(model, GraphOptimizations()), (13,), get_recipe("float32"))
    inputs = networks.inputs_of(model.config, length=13)
    received = answers(content, inputs)
    expected = {name: output.numpy() for name, output in model(inputs).items()}
    assert received.keys() == expected.keys()
    for name, output in expected.items():
        assert received[name].dtype == np.float32
        assert received[name].shape == output.shape
        assert networks.relative(output, received[name]) < TOLERANCE


def test_signatures_bind_int32_inputs_by_name(tmp_path: Path) -> None:
    model = optimize_graph(networks.network(networks.bert_config()), GraphOptimizations())
    counts = histogram(to_tflite(model, (13, 5), get_recipe("float32")), tmp_path)
    assert set(counts.signatures) == {"length_5", "length_13"}
    for length in (5, 13):
        inputs = counts.signatures[f"length_{length}"].inputs
        assert {name: (info.dtype, info.shape) for name, info in inputs.items()} == {
            name: ("int32", (1, length)) for name in ("input_word_ids", "input_mask", "input_type_ids")
        }
        assert counts.signatures[f"length_{length}"].outputs["logits"].shape == (1, 3)


def test_distilbert_without_segments_matches_model() -> None:
    config = networks.bert_config(model_type="distilbert", type_vocab_size=0, pooler="none")
    model = networks.network(config)
    content = to_tflite(optimize_graph(model, GraphOptimizations()), (13,), get_recipe("float32"))
    inputs = networks.inputs_of(model.config, length=13)
    received = answers(content, inputs)
    assert networks.relative(model(inputs)["logits"].numpy(), received["logits"]) < TOLERANCE


@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if recipe.calibration != "required"])
def test_operators_are_builtin_weights_match_recipe(recipe: str, tmp_path: Path) -> None:
    model = networks.network(networks.bert_config())
    counts = histogram(to_tflite(optimize_graph(model, GraphOptimizations()), (13,), get_recipe(recipe)), tmp_path)
    assert not counts.custom
    sizes = {path: int(np.prod(variable.shape)) for path, variable in model.weights_by_path().items()}
    sizes["encoder.embeddings.position.table"] = 13 * 40
    # What the converter quantizes: matrices of 1024 elements or more. The word table is among them.
    large = sum(size for path, size in sizes.items() if size >= 1024)
    small = sum(sizes.values()) - large
    # Rows of 40 take two blocks of 32 int4 weights, with a scale of 2 bytes each; rows of 56 too.
    types = {"float32": 4, "float16": 2, "dynamic_wi8": 1, "dynamic_wi4": 64 / 40 * 0.5}
    dtype = recipe if recipe.startswith("float") else {"dynamic_wi8": "int8", "dynamic_wi4": "int4"}[recipe]
    scales = 64 / 40 * 2 / 32 if recipe == "dynamic_wi4" else 0
    assert counts.weight_bytes_by_type[dtype] >= large * (types[recipe] if recipe != "dynamic_wi4" else 0.5)
    # Shapes and axes of operators count as weights too.
    assert counts.weight_bytes <= large * (types[recipe] + scales) + small * 4 + 1024


def test_lengths_share_weights_and_scales(tmp_path: Path) -> None:
    model = networks.network(networks.bert_config(num_layers=1))
    recipe = get_recipe("dynamic_wi8")
    shared = to_tflite(model, (5, 13), recipe)
    one, two = histogram(to_tflite(model, (13,), recipe), tmp_path), histogram(shared, tmp_path)
    # The second length brings its own 5 rows of positions, and constants of shapes: 1 KiB is more than those.
    assert two.weight_bytes - one.weight_bytes < 5 * 40 * 4 + 1024
    table = schema.ModelT.InitFromPackedBuf(shared, 0)
    builder = flatbuffers.Builder(len(shared))
    builder.Finish(table.Pack(builder), file_identifier=b"TFL3")
    repeated = bytes(builder.Output())
    # A scale (4 bytes) and a zero point (8 bytes) for each output of the quantized maps, and in each length again.
    channels = 3 * 30 + 40 + 56 + 40 + 40
    assert len(repeated) - len(shared) >= 12 * channels
    assert share_quantization(repeated) == shared
    inputs = networks.inputs_of(model.config, length=5)
    np.testing.assert_array_equal(answers(shared, inputs)["logits"], answers(repeated, inputs)["logits"])


@pytest.mark.one_of_each("bert")
@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_per_tensor_layers_change_nothing(family: str, tmp_path: Path) -> None:
    config = (
        networks.bert_config(num_layers=2) if family == "bert" else networks.mobilebert_config(intermediate_size=70)
    )
    model = networks.network(config)
    # gelu stands behind a map, relu inside it.
    inputs = networks.inputs_of(config)
    optimized = optimize_graph(model, GraphOptimizations())
    split, single = (to_tflite(optimized, (13,), get_recipe("dynamic_wi8"), channelwise=c) for c in (True, False))
    counts = histogram(split, tmp_path)
    assert counts.channelwise_fully_connected == counts.int8_fully_connected > 0
    counts = histogram(single, tmp_path)
    assert counts.channelwise_fully_connected == 0 < counts.int8_fully_connected
    assert int8_weights(single) == int8_weights(split)
    versions = [code.version for code in operator_codes(single) if code.builtinCode == FULLY_CONNECTED]
    assert versions
    assert max(versions) <= 9
    # The weights are the same; rounding may tip an activation into the next of 255 steps.
    expected, received = (answers(content, inputs)["logits"] for content in (split, single))
    assert networks.relative(expected, received) < 0.01


def int8_weights(content: bytes) -> set[bytes]:
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    return {
        bytes(model.buffers[tensor.buffer].data)
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.type == schema.TensorType.INT8 and model.buffers[tensor.buffer].data is not None
    }


def operator_codes(content: bytes) -> list[Any]:
    return schema.ModelT.InitFromPackedBuf(content, 0).operatorCodes


def operators(folder: Path, **options: bool) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """A MobileBERT's operators without any optimization, and with these."""
    model = networks.network(networks.mobilebert_config(num_layers=1))
    plain, optimized = (
        histogram(to_tflite(optimize_graph(model, chosen), (13,), get_recipe("float32")), folder).operators
        for chosen in (NONE, dataclasses.replace(NONE, **options))
    )
    return plain, optimized


def test_fused_projections_show_in_the_graph(tmp_path: Path) -> None:
    plain, fused = operators(tmp_path, fuse_projections=True)
    # In the block two of three maps of the feature map go into the first, and query and key become one.
    assert plain["FULLY_CONNECTED"] - fused["FULLY_CONNECTED"] == 3


@pytest.mark.nightly
def test_folded_norms_show_in_the_graph(tmp_path: Path) -> None:
    plain, folded = operators(tmp_path, fold_no_norm=True)
    # The block has four norms behind residual sums; the converter gets rid of some of the products itself.
    assert plain["MUL"] - folded["MUL"] >= 3
    assert plain["ADD"] - folded["ADD"] >= 3


@pytest.mark.nightly
def test_bert_optimizations_show_in_the_graph(tmp_path: Path) -> None:
    model = networks.network(networks.bert_config(num_layers=2))

    def content(graph_optimizations: GraphOptimizations) -> bytes:
        return to_tflite(optimize_graph(model, graph_optimizations), (13,), get_recipe("float32"))

    first = dataclasses.replace(NONE, first_token_only=True)
    plain, folded = (content(options) for options in (first, dataclasses.replace(first, fold_beta=True)))
    # Of five norms all but the last.
    assert histogram(plain, tmp_path).operators["ADD"] - histogram(folded, tmp_path).operators["ADD"] == 4
    # The last layer maps 13 keys and 13 values, or the query and the context of 3 heads.
    attending = content(dataclasses.replace(first, attend_to_inputs=True))
    assert rows_of_dense_layers(plain)[13] - rows_of_dense_layers(attending)[13] == 2
    assert rows_of_dense_layers(attending)[3] == 2


def rows_of_dense_layers(content: bytes) -> Counter[int]:
    """Number of rows that a FULLY_CONNECTED maps → number of these operators."""
    model = read_model(content)
    graph = model.subgraphs[0]
    outputs = [
        graph.tensors[operator.outputs[0]].shape
        for operator in graph.operators
        if operator_name(model, operator) == "FULLY_CONNECTED"
    ]
    return Counter(int(np.prod(shape[:-1])) for shape in outputs)


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8", "dynamic_wi4"])
def test_even_splits_go_into_xnnpack(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = optimize_graph(networks.network(networks.mobilebert_config(intermediate_size=70)), GraphOptimizations())
    content = to_tflite(model, (13,), get_recipe(recipe))
    monkeypatch.setattr(convert, "split_evenly", lambda content: content)
    plain = to_tflite(model, (13,), get_recipe(recipe))
    before, after = (delegated(file) for file in (plain, content))
    # A block splits two products, but the last one maps the first token alone.
    assert before["left"]["SPLIT_V"] == 2
    assert not {"SPLIT", "SPLIT_V"} & after["left"].keys()
    assert after["delegated_ops"] == before["delegated_ops"] + 2
    inputs = networks.inputs_of(model.config)
    np.testing.assert_array_equal(answers(plain, inputs)["logits"], answers(content, inputs)["logits"])


def delegated(content: bytes) -> dict[str, Any]:
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    xnnpack = delegate(interpreter)
    assert xnnpack is not None
    return xnnpack


@pytest.mark.parametrize(("sizes", "name"), [([5, 7], "SPLIT_V"), ([6, 6], "SPLIT")])
def test_even_splits_are_replaced(sizes: list[int], name: str) -> None:
    @tf.function(input_signature=[tf.TensorSpec([3, 12], tf.float32)])
    def parts(values: tf.Tensor) -> list[tf.Tensor]:
        return tf.split(values, sizes, axis=1)

    content = tf.lite.TFLiteConverter.from_concrete_functions([parts.get_concrete_function()]).convert()
    assert operator_names(content) == ["SPLIT_V"]
    split = split_evenly(content)
    assert operator_names(split) == [name]
    interpreter = Interpreter(model_content=split)
    interpreter.allocate_tensors()
    values = np.arange(36, dtype=np.float32).reshape(3, 12)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values)
    interpreter.invoke()
    model = read_model(split)
    outputs = [interpreter.get_tensor(int(index)) for index in model.subgraphs[0].operators[0].outputs]
    for expected, received in zip(np.split(values, [sizes[0]], axis=1), outputs, strict=True):
        np.testing.assert_array_equal(expected, received)


def operator_names(content: bytes) -> list[str]:
    model = read_model(content)
    return [operator_name(model, operator) for operator in model.subgraphs[0].operators]


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((), "received none"),
        ((2, 99), "received 2.*received 99"),
        ((13, 13), "each length once; received 13,13"),
    ],
)
def test_lengths_are_checked(lengths: tuple[int, ...], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        check_lengths(lengths, networks.bert_config())
    assert check_lengths([13, 5], networks.bert_config()) == (5, 13)


def test_unknown_recipe_error_lists_recipes() -> None:
    with pytest.raises(UserError, match="static_wi8_ai8_full, static_wi8_ai16, mixed; received 'int8'"):
        get_recipe("int8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilmv2_6l_384d", "tinybert_4l_312d", "mobilebert"])
def test_two_lengths_add_under_five_percent(name: str) -> None:
    model = optimize_graph(from_preset(preset(name).config, [networks.SENTIMENT]), GraphOptimizations())
    for recipe in ("float32", "dynamic_wi8"):
        one, three = (len(to_tflite(model, lengths, get_recipe(recipe))) for lengths in ((128,), (32, 64, 128)))
        assert three < 1.05 * one


def test_same_weights_give_same_bytes(small_directory: Path, small_bundle: Path, tmp_path: Path) -> None:
    # Keras numbers the layers of all models in a process.
    for seed in (1, 2):
        from_preset(networks.bert_config(num_layers=1), seed=seed)
    with converted_files.anew():
        result = export(small_directory, tmp_path / "again", recipe="float32", lengths=(7, 19))
    assert result.model_path.read_bytes() == (small_bundle / "model.tflite").read_bytes()
    # The caller's own layers are numbered on.
    assert from_preset(networks.bert_config(num_layers=1)).name != from_preset(networks.bert_config(num_layers=1)).name


@pytest.mark.slow
def test_another_process_exports_same_bytes(tmp_path: Path) -> None:
    bare = tiny_finetuning.write_model(tmp_path / "bare")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(200, 0))
    dev = tiny_finetuning.write_table(tmp_path / "dev.csv", tiny_finetuning.examples(31, 1))
    arguments = [f"--train-file={train}", f"--dev-file={dev}", "--lengths=11,19", "--epochs=1", "--learning-rate=3e-3"]
    command = ["bundle", f"--model={bare}", "--recipe=float32", *arguments, f"--output={tmp_path / 'out'}"]
    assert cli.main(command) == 0
    first = (tmp_path / "out" / "bundle" / "model.tflite").read_bytes()
    # As after a kill between training and export.
    shutil.rmtree(tmp_path / "out" / "bundle")
    subprocess.run([sys.executable, "-m", "pocketbert.cli", *command], check=True, capture_output=True, timeout=300)
    assert (tmp_path / "out" / "bundle" / "model.tflite").read_bytes() == first


@pytest.mark.one_of_each("float32")
@pytest.mark.parametrize("recipe", ["float32", "float16"])
def test_padding_row_of_trigrams_passes_gate(recipe: str, tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    model = networks.network(networks.mobilebert_config(num_layers=1), tokenizer=tokenizer)
    assert np.abs(model.encoder.embeddings.word.table[0]).max() > 0.1
    model.save_pretrained(tmp_path / "model")
    # With [CLS] and [SEP], the first text fills length 7 and the last one length 13.
    texts = ["the film is good .", "dull", "a cat walks and the story ends very very well ."]
    examples = Examples(texts, None, None, ["0", "1", "2"], "the texts")
    bundle = export(tmp_path / "model", tmp_path / "bundle", recipe=recipe, lengths=(7, 13), examples=examples)
    together, alone = bundle.predict(texts), [bundle.predict([text])[0] for text in texts]
    expected_answers = [*model.predict(texts), *[model.predict([text])[0] for text in texts]]
    for answer, expected in zip([*together, *alone], expected_answers, strict=True):
        for label, probability in expected["probabilities"].items():
            # Float16 weights have 11 bits.
            atol = 2e-5 if recipe == "float32" else 5e-3
            assert answer["probabilities"][label] == pytest.approx(probability, abs=atol)
    for one, other in zip(expected_answers[:3], expected_answers[3:], strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=2e-6)
