"""Faults of a bundle that show without the float model: Java refuses those that Python refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_folders
import numpy as np
import pytest
from safetensors.numpy import load, save

from pocketbert.errors import UserError, raise_if_any
from pocketbert_export.bundle import Bundle
from pocketbert_export.goldens import tokenization_problems

pytestmark = pytest.mark.java

APP = Path(__file__).parents[2] / "android_app"
BUNDLE = APP / "core/src/test/resources/bundles/dynamic_wi8"
JAR = APP / "host/target/pocketbert-host.jar"
Change = Callable[[Path], object]


def vocabulary(change: Callable[[list[str]], list[str]]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / "vocab.txt"
        pieces = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(f"{piece}\n" for piece in change(pieces)), encoding="utf-8")
        bundle_folders.describe_again(folder)

    return apply


def described(change: Callable[[dict[str, Any]], object], labels: str | None = None) -> Change:
    """Changes bundle.json after its sums were made anew, so that they can be changed too."""

    def apply(folder: Path) -> None:
        if labels is not None:
            (folder / "labels.txt").write_text(labels, encoding="utf-8")
        description = bundle_folders.description_of(bundle_folders.describe_again(folder))
        change(description)
        (folder / "bundle.json").write_text(json.dumps(description), encoding="utf-8")

    return apply


def answers(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / bundle_folders.GOLDENS
        tensors = load(path.read_bytes())
        change(tensors)
        path.write_bytes(save(tensors))
        bundle_folders.describe_again(folder)

    return apply


def written(name: str, content: bytes) -> Change:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(content)
        if name != "bundle.json":
            bundle_folders.describe_again(folder)

    return apply


def nothing(_: dict[str, Any]) -> None: ...


# Name → what is done to a good bundle, and words of Java's sentence.
FAULTS: dict[str, tuple[Change, str]] = {
    "ten_pieces_more": (
        vocabulary(lambda pieces: [*pieces, *(f"x{i}" for i in range(10))]),
        "vocab.txt must have 97 lines",
    ),
    "a_null_piece": (vocabulary(lambda pieces: [*pieces[:-1], "\0"]), "a token has no control characters"),
    "path_outside": (
        described(lambda it: it["files"].update({"../vocab.txt": it["files"]["vocab.txt"]})),
        "plain file names",
    ),
    "absolute_path": (
        described(lambda it: it["files"].update({"/vocab.txt": it["files"]["vocab.txt"]})),
        "plain file names",
    ),
    "lists_itself": (
        described(lambda it: it["files"].update({"bundle.json": it["files"]["vocab.txt"]})),
        "must not list bundle.json",
    ),
    "labels_swapped_in_json": (described(lambda it: it["task"]["labels"].reverse()), "labels.txt must hold the labels"),
    "labels_swapped_in_text": (
        described(nothing, "good\nfair\nbad\n"),
        "labels.txt must hold the labels",
    ),
    "four_labels": (
        described(lambda it: it["task"]["labels"].append("worse"), "bad\nfair\ngood\nworse\n"),
        "a number for each label",
    ),
    "labels_unlisted": (described(lambda it: it["files"].pop("labels.txt")), "labels.txt must be listed"),
    "labels_alike": (
        described(lambda it: it["task"].update(labels=["bad", "BAD", "good"]), "bad\nBAD\ngood\n"),
        "must differ in more than case",
    ),
    "a_label_of_two_lines": (
        described(lambda it: it["task"].update(labels=["bad", "fa\nir", "good"]), "bad\nfa\nir\ngood\n"),
        "must be one line of text",
    ),
    "unknown_recipe": (described(lambda it: it.update(recipe="dynamic_wi2")), "$.recipe must be one of"),
    "unknown_member": (described(lambda it: it.update(surplus=1)), "$.surplus is not known"),
    "version_1": (described(lambda it: it.update(schema_version=1)), "schema_version must be 2"),
    "golden_without_mask": (
        described(lambda it: it["goldens"][0]["inputs"].pop("input_mask")),
        "input_mask must be a list",
    ),
    "golden_of_another_length": (
        described(lambda it: it["goldens"][0].update(length=10)),
        "$.goldens[0].length must be one of [9, 17]",
    ),
    "words_as_ids": (
        described(lambda it: it["goldens"][0]["inputs"].update(input_word_ids=[["a"] * 9])),
        "must hold whole numbers",
    ),
    "ids_beyond_the_vocabulary": (
        described(lambda it: it["goldens"][0]["inputs"]["input_word_ids"][0].__setitem__(1, 97)),
        "whole numbers below 97",
    ),
    "a_golden_text_of_other_ids": (
        described(lambda it: it["goldens"][0].update(text="good")),
        "must have the tokenizer's input_word_ids",
    ),
    "lowercase_flipped": (
        described(lambda it: it["tokenizer"].update(lowercase=False, strip_accents=False)),
        "must have the tokenizer's input_word_ids",
    ),
    "pieces_shuffled": (
        vocabulary(lambda pieces: [*pieces[:5], *reversed(pieces[5:])]),
        "must have the tokenizer's input_word_ids",
    ),
    "no_answers": (written("goldens.safetensors", b""), "size_bytes must be a whole number"),
    "answers_cut": (
        lambda folder: written("goldens.safetensors", (folder / "goldens.safetensors").read_bytes()[:-4])(folder),
        "goldens.safetensors must be a safetensors file",
    ),
    "an_answer_missing": (answers(lambda it: it.pop("0/outputs/logits")), "0/outputs/logits must be there"),
    "an_answer_too_many": (
        answers(lambda it: it.update({"9/outputs/logits": it["0/outputs/logits"]})),
        "no tensor 9/outputs/logits",
    ),
    "an_answer_in_float16": (
        answers(lambda it: it.update({"0/outputs/logits": it["0/outputs/logits"].astype("float16")})),
        "dtype must be F32",
    ),
    "an_answer_that_is_no_number": (
        answers(lambda it: it["0/outputs/logits"].__setitem__((0, 0), float("nan"))),
        "must hold finite numbers",
    ),
    "deep_json": (written("bundle.json", b"[" * 200_000), "bundle.json expected at most"),
    "a_number_of_5000_digits": (written("bundle.json", b"[" + b"1" * 5000 + b"]"), "bundle.json expected a number"),
    "not_utf_8": (written("bundle.json", b'"\xff"'), "bundle.json must be UTF-8"),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("faulty")
    for name, (change, _) in FAULTS.items():
        change(Path(shutil.copytree(BUNDLE, folder / name)))
    return {name: folder / name for name in FAULTS}


@pytest.mark.parametrize("name", FAULTS)
def test_python_refuses_it(faulty: dict[str, Path], name: str) -> None:
    with pytest.raises(UserError):
        bundle = Bundle.open(faulty[name])
        raise_if_any(tokenization_problems(bundle.goldens, bundle.tokenizer()), name)


def test_java_refuses_all_of_them(faulty: dict[str, Path]) -> None:
    for names in (list(FAULTS)[:15], list(FAULTS)[15:]):
        command = ["java", "-Xmx256m", "-jar", str(JAR), *(str(faulty[name]) for name in names)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        for name in names:
            start = done.stderr.index(f"{faulty[name]}")
            assert FAULTS[name][1] in done.stderr[start : start + 300], name


def graph(change: Callable[[Any], None]) -> Change:
    """Changes the model's FlatBuffer."""

    def apply(folder: Path) -> None:
        from tensorflow.lite.tools import flatbuffer_utils

        path = folder / "model.tflite"
        model = flatbuffer_utils.convert_bytearray_to_object(bytearray(path.read_bytes()))
        change(model)
        path.write_bytes(bytes(flatbuffer_utils.convert_object_to_bytearray(model)))
        bundle_folders.describe_again(folder)

    return apply


def open_batch(model: Any) -> None:
    for each in model.subgraphs:
        for index in each.inputs:
            tensor = each.tensors[index]
            tensor.shapeSignature = np.array([-1, *tensor.shape[1:]], np.int32)


def renamed(kind: str, old: bytes, new: bytes) -> Change:
    def change(model: Any) -> None:
        for signature in model.signatureDefs:
            for entry in getattr(signature, kind):
                entry.name = new if entry.name == old else entry.name

    return graph(change)


def without_length_17(model: Any) -> None:
    model.signatureDefs = [each for each in model.signatureDefs if each.signatureKey != b"length_17"]


def more_pieces(folder: Path) -> None:
    vocabulary(lambda pieces: [*pieces, *(f"x{i}" for i in range(10))])(folder)
    described(lambda it: it["tokenizer"].update(vocab_size=107))(folder)


def cut_model(folder: Path) -> None:
    written("model.tflite", (folder / "model.tflite").read_bytes()[:900])(folder)


# What shows when the file runs: what is done → words of the sentence that stands where the time would.
FAULTS_OF_THE_MODEL: dict[str, tuple[Change, str]] = {
    "an_open_batch": (graph(open_batch), "must have a fixed shape; dimension 0 is open"),
    "an_input_of_another_name": (renamed("inputs", b"input_mask", b"mask"), "the inputs must be"),
    "an_output_of_another_name": (renamed("outputs", b"logits", b"scores"), "the outputs must be [logits]"),
    "a_length_without_signature": (graph(without_length_17), "the model must have the signature length_"),
    "pieces_that_the_model_lacks": (more_pieces, "cannot run the network"),
    "a_model_cut_short": (cut_model, "the file is no TFLite model"),
    "own_answers_of_the_wrong_sign": (
        answers(lambda it: it.update({name: -it[name] for name in it if "/exported_" in name})),
        "its recorded answers are not the float model's",
    ),
    "float_answers_of_the_wrong_sign": (
        answers(lambda it: it.update({name: -it[name] for name in it if "/outputs" in name})),
        "its recorded answers are not the float model's",
    ),
    "both_of_the_wrong_sign": (
        answers(lambda it: it.update({name: -it[name] for name in it})),
        "its outputs must be those recorded at export",
    ),
}


def test_java_times_no_faulty_model(tmp_path: Path) -> None:
    for name, (change, _) in FAULTS_OF_THE_MODEL.items():
        change(Path(shutil.copytree(BUNDLE, tmp_path / name)))
    folders = [str(tmp_path / name) for name in FAULTS_OF_THE_MODEL]
    command = ["java", "-jar", str(JAR), "--lengths=17", *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    said = dict(line.split(" at 17 tokens, 1 thread: ") for line in done.stdout.splitlines())
    assert set(said) == set(FAULTS_OF_THE_MODEL)
    for name, (_, words) in FAULTS_OF_THE_MODEL.items():
        assert said[name].startswith("failed: ") and words in said[name], (name, said[name])


def test_both_take_the_bundle_as_it_was(tmp_path: Path) -> None:
    folder = bundle_folders.describe_again(Path(shutil.copytree(BUNDLE, tmp_path / "good")))
    assert len(Bundle.open(folder).goldens) == 4
