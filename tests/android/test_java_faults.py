"""Java refuses the same faulty bundles as Python, if the fault shows without the float model."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import bundle_folders
import numpy as np
import pytest
from faults import (
    Inject,
    answers,
    cut,
    described,
    edited,
    golden,
    graph,
    labels,
    open_batch,
    outside,
    renamed,
    swapped_answers,
    tensors,
    vocabulary,
    window,
    without_longest_signature,
    written,
)

import pocketbert_runtime
from pocketbert.errors import UserError, raise_if_any
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.goldens import tokenization_problems

pytestmark = pytest.mark.java

APP = Path(__file__).parents[2] / "android_app"
BUNDLE = APP / "core/src/test/resources/bundles/dynamic_wi8"
JAR = APP / "host/target/pocketbert-host.jar"
MOODS = ("bad", "fair", "good")
GOLDENS = bundle_folders.GOLDENS


def more_pieces(pieces: list[str]) -> list[str]:
    return [*pieces, *(f"x{number}" for number in range(10))]


# Name → change of a valid bundle, and part of Java's message.
FAULTS: dict[str, tuple[Inject, str]] = {
    "ten_pieces_more": (vocabulary(more_pieces), "vocab.txt must have 97 lines"),
    "a_null_piece": (vocabulary(lambda pieces: [*pieces[:-1], "\0"]), "tokens must not have control characters"),
    "path_outside": (outside("../vocab.txt"), "plain file names"),
    "absolute_path": (outside("/vocab.txt"), "plain file names"),
    "lists_itself": (outside("bundle.json"), "must not list bundle.json"),
    "labels_swapped_in_json": (edited(lambda it: it["task"]["labels"].reverse()), "labels.txt must hold the labels"),
    "labels_swapped_in_text": (labels(MOODS, MOODS[::-1]), "labels.txt must hold the labels"),
    "four_labels": (labels((*MOODS, "worse"), (*MOODS, "worse")), "one number per label"),
    "labels_unlisted": (edited(lambda it: it["files"].pop("labels.txt")), "labels.txt must be listed"),
    "labels_alike": (labels(("bad", "BAD", "good"), ("bad", "BAD", "good")), "must differ in more than case"),
    "a_label_of_two_lines": (
        labels(("bad", "fa\nir", "good"), ("bad", "fa\nir", "good")),
        "must be one line of text",
    ),
    "unknown_recipe": (described(recipe="dynamic_wi2"), "$.recipe must be one of"),
    "columns_of_another_form": (
        described(columns={"text": "review", "label": "mood", "separator": ","}),
        "$.columns.label must be a list",
    ),
    "unknown_member": (described(surplus=1), "$.surplus is unknown"),
    "version_3": (
        described(schema_version=3),
        "schema_version must be 4 for this version; received 3; export the bundle",
    ),
    "golden_without_offsets": (window(offsets=None), "answers.jsonl: line 1.windows[0].offsets must be a list"),
    "golden_longer_than_all_lengths": (
        window(ids=[5] * 18, type_ids=[0] * 18, offsets=[[0, 1]] * 18),
        "ids must have at most 17 ids; it has 18",
    ),
    "words_as_ids": (window(ids=["a"]), "must hold whole numbers"),
    "ids_beyond_the_vocabulary": (window(ids=[97], type_ids=[0], offsets=[[0, 0]]), "whole numbers below 97"),
    "a_golden_text_of_other_ids": (golden(lambda one: one.update(text="good")), "must have the tokenizer's ids"),
    "golden_of_other_segments": (
        golden(lambda one: one["windows"][0]["type_ids"].__setitem__(0, 1)),
        "must have the tokenizer's type_ids",
    ),
    "golden_of_other_offsets": (
        golden(lambda one: one["windows"][0]["offsets"].__setitem__(1, [0, 2])),
        "must have the tokenizer's offsets",
    ),
    "no_golden_answers": (lambda folder: (folder / "answers.jsonl").unlink(), "answers.jsonl must be there"),
    "golden_answers_cut": (cut("answers.jsonl", -2), "answers.jsonl must end with a line break"),
    "another_digest_of_answers": (
        edited(lambda it: it["answers"].update(sha256="0" * 64)),
        "$.answers must have the file answers.jsonl and its sha256",
    ),
    "lowercase_flipped": (
        edited(lambda it: it["tokenizer"].update(lowercase=False, strip_accents=False)),
        "must have the tokenizer's ids",
    ),
    "pieces_shuffled": (
        vocabulary(lambda pieces: [*pieces[:5], *reversed(pieces[5:])]),
        "must have the tokenizer's ids",
    ),
    "no_answers": (written(GOLDENS, b""), "size_bytes must be a whole number"),
    "answers_cut": (cut(GOLDENS, -4), "goldens.safetensors must be a safetensors file"),
    "an_answer_missing": (tensors(lambda it: it.pop("0/outputs/logits")), "0/outputs/logits must be there"),
    "an_answer_too_many": (
        tensors(lambda it: it.update({"90/outputs/logits": it["0/outputs/logits"]})),
        "outputs/logits must be there; it is missing",
    ),
    "an_answer_in_float16": (
        tensors(lambda it: it.update({"0/outputs/logits": it["0/outputs/logits"].astype("float16")})),
        "dtype must be F32",
    ),
    "an_answer_that_is_no_number": (
        tensors(lambda it: it["0/outputs/logits"].__setitem__((0, 0), float("nan"))),
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
        assert len(bundle.goldens) > 0
        problems = tokenization_problems(bundle.golden_lines, bundle.task, bundle.tokenizer, bundle.lengths[-1])
        raise_if_any(problems, name)


def test_java_refuses_all_of_them(faulty: dict[str, Path]) -> None:
    # A line names the first faults only.
    for start in range(0, len(FAULTS), 10):
        names = list(FAULTS)[start : start + 10]
        command = ["java", "-Xmx256m", "-jar", str(JAR), *(str(faulty[name]) for name in names)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        for name in names:
            position = done.stderr.index(f"{faulty[name]}")
            assert FAULTS[name][1] in done.stderr[position : position + 300], name


# Faults found by running the file: name → change, and part of the reason in place of a latency.
FAULTS_OF_THE_MODEL: dict[str, tuple[Inject, str]] = {
    "an_open_batch": (graph(open_batch), "must have a fixed shape; dimension 0 is open"),
    "an_input_of_another_name": (renamed("inputs", b"input_mask", b"mask"), "the inputs must be"),
    "an_output_of_another_name": (renamed("outputs", b"logits", b"scores"), "the outputs must be [logits]"),
    "a_length_without_signature": (graph(without_longest_signature), "the model must have the signature length_"),
    "pieces_that_the_model_lacks": (vocabulary(more_pieces, vocab_size=107), "cannot run the network"),
    "a_model_cut_short": (cut("model.tflite", 900), "the file must be a TFLite model"),
    "own_answers_of_the_wrong_sign": (
        answers("/exported_outputs/logits", np.negative),
        "its recorded outputs must match the float model's",
    ),
    "float_answers_of_the_wrong_sign": (
        answers("/outputs/logits", np.negative),
        "its recorded outputs must match the float model's",
    ),
    "both_of_the_wrong_sign": (answers("logits", np.negative), "its outputs must be those recorded at export"),
}


def test_java_times_no_faulty_model(tmp_path: Path) -> None:
    for name, (change, _) in FAULTS_OF_THE_MODEL.items():
        change(Path(shutil.copytree(BUNDLE, tmp_path / name)))
    folders = [str(tmp_path / name) for name in FAULTS_OF_THE_MODEL]
    command = ["java", "-jar", str(JAR), "--lengths=17", *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    answers = dict(line.split(" at 17 tokens, 1 thread: ") for line in done.stdout.splitlines())
    assert set(answers) == set(FAULTS_OF_THE_MODEL)
    for name, (_, words) in FAULTS_OF_THE_MODEL.items():
        assert answers[name].startswith("failed: ") and words in answers[name], (name, answers[name])


def test_both_accept_the_valid_bundle(tmp_path: Path) -> None:
    folder = bundle_folders.describe_again(Path(shutil.copytree(BUNDLE, tmp_path / "good")))
    assert len(Bundle.open(folder).goldens) == 4


def other_label(folder: Path) -> None:
    """Another label for "Not bad!"; the labels of the first text nearly tie."""
    lines = bundle_folders.golden_lines(folder)
    assert lines[2]["answer"]["label"] == "bad"
    lines[2]["answer"]["label"] = "good"
    bundle_folders.write_lines(folder, lines)


# Faults of final answers: name → change, and part of the message of both `check` methods.
WRONG_ANSWERS: dict[str, tuple[Inject, str]] = {
    "another_label": (other_label, "the bundle answers"),
    "another_probability": (golden(lambda line: line["answer"]["probabilities"].update(bad=0.9)), "up to 0.0073"),
    "two_answers_swapped": (swapped_answers, "must have the"),
    "no_answer": (golden(lambda line: line.update(answer=None)), "must have an answer"),
    "another_member": (golden(lambda line: line["answer"].update(score=1)), "must have an answer with"),
    "other_offsets": (golden(lambda line: line["windows"][0]["offsets"].__setitem__(1, [0, 2])), "offsets"),
}


def test_both_compare_golden_answers(tmp_path: Path) -> None:
    folders = {name: Path(shutil.copytree(BUNDLE, tmp_path / name)) for name in ("unchanged", *WRONG_ANSWERS)}
    for name, (change, _) in WRONG_ANSWERS.items():
        change(folders[name])
    command = ["java", "-jar", str(JAR), "check", *map(str, folders.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    first, *lines = done.stdout.splitlines()
    assert (done.returncode, first) == (1, "ok")
    pocketbert_runtime.Bundle.open(BUNDLE).check()
    for (name, (_, words)), line in zip(WRONG_ANSWERS.items(), lines, strict=True):
        assert "answers.jsonl: line " in line and words in line, name
        with pytest.raises(UserError, match="answers.jsonl: line ") as raised:
            pocketbert_runtime.Bundle.open(folders[name]).check()
        assert words in str(raised.value), name
