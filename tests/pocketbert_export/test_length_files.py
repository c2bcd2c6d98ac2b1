"""Files with one length, for clients that know a file's inputs and outputs by position only."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import bundle_folders
import numpy as np
import pytest
import static_texts
import tiny_finetuning
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.tflite.graph import one_signature, read_model, write_model
from pocketbert_export.verification.verify import verify_bundle

LENGTHS = (7, 19)
INPUTS = ["input_word_ids", "input_mask", "input_type_ids"]


def by_position(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a client without signatures: inputs in the documented order, outputs by their tensors' names."""
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    for detail, name in zip(interpreter.get_input_details(), INPUTS, strict=True):
        assert (detail["name"], detail["dtype"]) == (name, np.int32)
        interpreter.set_tensor(detail["index"], inputs[name])
    interpreter.invoke()
    return {detail["name"]: interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()}


def by_name(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    return interpreter.get_signature_runner(f"length_{inputs['input_mask'].shape[1]}")(**inputs)


@pytest.fixture(scope="module")
def float_bundle(small_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(
        small_directory, tmp_path_factory.mktemp("float") / "b", recipe="float32", lengths=LENGTHS, length_files=True
    ).directory


@pytest.mark.one_of_each("dynamic_wi4")
@pytest.mark.parametrize("recipe", [name for name, row in RECIPES.items() if row.calibration != "required"])
def test_outputs_equal_the_signatures(recipe: str, small_directory: Path, tmp_path: Path) -> None:
    bundle = export(small_directory, tmp_path / "b", recipe=recipe, lengths=LENGTHS, length_files=True)
    assert bundle.length_files == {7: "model_7.tflite", 19: "model_19.tflite"}
    assert {golden.length for golden in bundle.goldens} == {*LENGTHS}
    for golden in bundle.goldens:
        received = by_position(bundle.directory / bundle.length_files[golden.length], golden.inputs)
        expected = by_name(bundle.model_path, golden.inputs)
        # The same operators and constants in the same order: no bit may differ.
        np.testing.assert_array_equal(received["logits"], expected["logits"])


def test_two_outputs_keep_the_documented_order(small_model: Model, tmp_path: Path) -> None:
    # The alphabet's order, which the converter takes, is another.
    model = pb.from_preset(small_model.config, [TaskConfig(kind="span")], small_model.tokenizer, seed=3)
    bundle = export(model, tmp_path / "b", recipe="float32", lengths=LENGTHS, length_files=True)
    for golden in bundle.goldens:
        received = by_position(bundle.directory / bundle.length_files[golden.length], golden.inputs)
        expected = by_name(bundle.model_path, golden.inputs)
        assert [*received] == [*bundle.output_names] == ["start_logits", "end_logits"]
        for name in expected:
            np.testing.assert_array_equal(received[name], expected[name])


@pytest.mark.nightly
def test_int8_outputs_keep_scale_and_zero_point(small_directory: Path, tmp_path: Path) -> None:
    bundle = export(
        small_directory,
        tmp_path / "b",
        recipe="static_wi8_ai8_full",
        lengths=LENGTHS,
        output_type="int8",
        calibration=static_texts.examples(static_texts.sentences(70, 7)),
        calibration_options=CalibrationOptions(calibration_examples=64),
        length_files=True,
    )
    for golden in bundle.goldens:
        path = bundle.directory / bundle.length_files[golden.length]
        values = by_position(path, golden.inputs)["logits"]
        (detail,) = Interpreter(model_path=str(path)).get_output_details()
        scale, zero_point = detail["quantization"]
        assert values.dtype == np.int8
        # As docs/how-to/from-text-to-answer.md says.
        logits = np.float32(scale) * (values.astype(np.float32) - np.float32(zero_point))
        np.testing.assert_array_equal(logits, bundle.run(golden.inputs)["logits"])


def test_command_prints_sizes_and_lists_digests(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"--model={small_directory}", "--recipe=float32", "--lengths=7", f"--output={tmp_path / 'b'}"]
    assert cli.main(["export", *arguments, "--length-files"]) == 0
    size = (tmp_path / "b" / "model_7.tflite").stat().st_size
    assert json.loads(capsys.readouterr().out)["length_files"] == {"model_7.tflite": size}
    assert bundle_folders.description_of(tmp_path / "b")["files"]["model_7.tflite"]["size_bytes"] == size


def test_without_them_a_client_sees_one_length(float_bundle: Path) -> None:
    details = Interpreter(model_path=str(float_bundle / "model.tflite")).get_input_details()
    # In the alphabet, length_19 stands before length_7. The converter has an order of its own.
    assert {tuple(detail["shape"]) for detail in details} == {(1, 19)}
    assert [detail["name"] for detail in details] != INPUTS


def test_bundle_without_them_has_none(small_bundle: Path) -> None:
    bundle = Bundle.open(small_bundle)
    assert bundle.length_files == {} and not [*small_bundle.glob("model_*.tflite")]


def damaged(folder: Path, target: Path, change: str) -> Path:
    """A copy whose model_19.tflite is not what model.tflite has."""
    shutil.copytree(folder, target)
    path = target / "model_19.tflite"
    if change == "another order":
        order = [INPUTS[0], INPUTS[2], INPUTS[1]]
        path.write_bytes(one_signature((target / "model.tflite").read_bytes(), "length_19", order, ["logits"]))
    if change == "another length":
        shutil.copyfile(target / "model_7.tflite", path)
    if change == "another bias":
        model = read_model(path.read_bytes())
        (index,) = {
            tensor.buffer
            for tensor in model.subgraphs[0].tensors
            if [*tensor.shape] == [3] and tensor.type == schema.TensorType.FLOAT32 and tensor.buffer
        }
        bias = model.buffers[index]
        bias.data = (np.asarray(bias.data, np.uint8).view(np.float32) + [0, 1, 0]).astype(np.float32).view(np.uint8)
        path.write_bytes(write_model(model))
    return bundle_folders.describe_again(target)


@pytest.mark.parametrize(
    ("change", "check", "reason"),
    [
        ("another order", "length files", "inputs must be input_word_ids, input_mask, input_type_ids in this order"),
        ("another length", "length files", "model_19.tflite: signatures: length_19 is missing"),
        ("another bias", "length files: outputs", "goldens"),
    ],
)
def test_gate_refuses_other_files(change: str, check: str, reason: str, float_bundle: Path, tmp_path: Path) -> None:
    verification = verify_bundle(damaged(float_bundle, tmp_path / "b", change))
    assert [failure.name for failure in verification.failures] == [check]
    assert reason in verification.failures[0].reason


def test_gate_passes_sound_files(float_bundle: Path) -> None:
    verification = verify_bundle(float_bundle)
    names = [check.name for check in verification.checks if check.name.startswith("length files")]
    assert verification.passed and names == ["length files", "length files: outputs"]


def test_one_missing_or_foreign_is_refused(float_bundle: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(float_bundle, tmp_path / "b"))
    (folder / "model_7.tflite").rename(folder / "model_8.tflite")
    bundle_folders.describe_again(folder)
    with pytest.raises(UserError) as raised:
        Bundle.open(folder)
    assert "model_7.tflite must be listed among the files" in str(raised.value)
    assert "model_8.tflite must be for one of the signatures" in str(raised.value)


def test_seventeen_lengths_are_refused(small_directory: Path, tmp_path: Path) -> None:
    message = "length_files=True is for at most 16 lengths; received 17; pass fewer lengths"
    with pytest.raises(UserError, match=re.escape(message)):
        export(small_directory, tmp_path / "b", lengths=range(4, 21), length_files=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.nightly
def test_bundle_command_refuses_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tiny_finetuning.write_model(tmp_path / "bare")
    table = tmp_path / "t.csv"
    rows = "".join(
        f"{word} {word},{label}\n"
        for label, words in (("yes", tiny_finetuning.GOOD), ("no", tiny_finetuning.BAD))
        for word in words
    )
    table.write_text(f"text,label\n{rows}", encoding="utf-8")
    command = [
        "bundle",
        f"--model={bare}",
        f"--train-file={table}",
        f"--output={tmp_path / 'out'}",
        "--epochs=1",
        "--max-length=9",
        "--lengths=9",
        "--recipe=float32",
    ]
    assert cli.main([*command, "--length-files"]) == 0
    size = (tmp_path / "out" / "bundle" / "model_9.tflite").stat().st_size
    assert json.loads(capsys.readouterr().out)["length_files"] == {"model_9.tflite": size}
    assert cli.main(command) == 2
    assert "must be a bundle of these weights, recipe, lengths and length files" in capsys.readouterr().err
