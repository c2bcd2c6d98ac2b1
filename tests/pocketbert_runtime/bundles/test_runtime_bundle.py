"""Bundles without TensorFlow: answers with NumPy and LiteRT alone, and what does not open."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_folders
import networks
import numpy as np
import pytest
from runtime_bundles import LENGTHS, TEXTS

import pocketbert_runtime
from pocketbert_runtime import Bundle, UserError
from pocketbert_runtime.bundles.description import Description

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from pocketbert_runtime import Bundle

answers = Bundle.open(sys.argv[1]).predict(json.loads(sys.argv[2]))
loaded = sorted({"jsonschema", "pocketbert", "safetensors", "scipy", "tensorflow", "tokenizers"} & {*sys.modules})
print(json.dumps([answers, loaded]))
"""


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported / "bundle", tmp_path / "copy"))


def test_answers_without_tensorflow_are_the_models(exported: Path) -> None:
    arguments = [str(exported / "bundle"), json.dumps(TEXTS)]
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={"PYTHONPATH": str(ROOT / "runtime")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers, loaded = json.loads(answer.stdout)
    expected = json.loads((exported / "answers.json").read_text("utf-8"))
    assert loaded == []
    assert [row["label"] for row in answers] == [row["label"] for row in expected]
    for row, other in zip(answers, expected, strict=True):
        # Float32 rounding, as in test_bundle.
        assert row["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)


def test_probabilities_have_the_order_of_the_labels(exported: Path) -> None:
    probabilities = Bundle.open(exported / "bundle").predict_proba(TEXTS)
    expected = json.loads((exported / "answers.json").read_text("utf-8"))
    rows = [[row["probabilities"][label] for label in networks.SENTIMENT.labels] for row in expected]
    np.testing.assert_allclose(probabilities, rows, atol=1e-4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_scores_have_no_probabilities(copy: Path) -> None:
    task = {"kind": "regression", "name": "", "labels": []}
    bundle = Bundle.open(bundle_folders.describe_again(copy, task=task))
    with pytest.raises(UserError, match="predict_proba is for classes or labels of a text; received regression"):
        bundle.predict_proba(TEXTS)


def test_bundle_tells_what_it_is(exported: Path) -> None:
    bundle = Bundle.open(exported / "bundle")
    assert bundle.task == networks.SENTIMENT and bundle.pair_task is None
    assert (bundle.lengths, bundle.recipe, bundle.output_names) == (LENGTHS, "float32", ("logits",))
    assert repr(bundle).startswith(
        f"<Bundle {bundle.directory}: mood classification, 3 labels (bad, fair, good), float32"
    )


def test_each_text_takes_the_shortest_length(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, lengths = Bundle.open(exported / "bundle"), []
    run = bundle.run

    def noted(inputs: dict[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        lengths.extend([length] * len(inputs["input_mask"]))
        return run(inputs, length)

    monkeypatch.setattr(bundle, "run", noted)
    bundle.predict(TEXTS)
    assert sorted(lengths) == [7, 7, 7, 19]


def changed(member: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets a member of `bundle.json`, given by its path; without a value removes it."""
    *path, last = member.split(".")

    def change(content: dict[str, Any]) -> None:
        for name in path:
            content = content[name]
        if value is ...:
            del content[last]
        else:
            content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("schema_version", 3), "must have schema_version 4; received 3, written by an earlier .*; export the"),
        (changed("schema_version", 5), "received 5, written by a later pocketbert; update pocketbert-runtime"),
        (changed("schema_version", True), "schema_version must be a whole number; received True"),
        (changed("answers", ...), "answers must be an object; received None"),
        (changed("answers.tolerance", ...), "answers: tolerance must be a number; received None"),
        (changed("answers.tolerance", -1), "tolerance must be at least 0; received -1"),
        (changed("answers.file", "../answers"), "answers must have the file answers.jsonl and its sha256"),
        (changed("outputs", [{"name": "logits"}]), r"outputs\[0\]: dtype must be a string; received None"),
        (changed("signatures", [{"length": 7}]), r"signatures\[0\]: name must be a string; received None"),
        (changed("recipe", ...), "recipe must be a string; received None"),
        (changed("schema_version", "2"), "schema_version must be a whole number; received '2'"),
        (changed("files", ...), "files must be an object; received None"),
        (changed("signatures", []), "received 1 outputs and lengths none"),
        (changed("signatures", [{"name": "length_0", "length": 0}]), "received 1 outputs and lengths 0"),
        (changed("task.kind", "sentiment"), "kind must be one of classification, .*; received 'sentiment'"),
        (changed("task.labels", ["good"]), "classification needs at least two labels; received 'good'"),
        (changed("task.temperature", 2.0), "task: 'temperature' is unknown and may change answers"),
        (changed("task.decisions", {"reject_below": 2}), r"reject_below must lie in \[0, 1\]; received 2"),
        (changed("tokenizer.kind", "characters"), "kind must be one of wordpiece, .*; received 'characters'"),
        (changed("tokenizer.lowercase", ...), "must have lowercase, strip_accents, tokenize_chinese_chars"),
        (changed("tokenizer.casing", "upper"), "tokenizer: 'casing' is unknown and may change answers"),
        (changed("tokenizer.truncation", "middle"), "truncation must be one of .*; received 'middle'"),
        (changed("pairs", {}), "pairs: task must be an object; received None"),
    ],
)  # fmt: skip
def test_wrong_descriptions_are_one_line(copy: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    content = bundle_folders.description_of(copy)
    change(content)
    (copy / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=message) as raised:
        Bundle.open(copy)
    assert str(copy / "bundle.json") in str(raised.value) and "\n" not in str(raised.value)


def test_damaged_and_foreign_files_are_listed(copy: Path) -> None:
    content = bundle_folders.description_of(copy)
    content["files"] |= {"../secret.txt": {"sha256": "0" * 64, "size_bytes": 3}}
    del content["files"]["vocab.txt"]
    (copy / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    model = (copy / "model.tflite").read_bytes()
    (copy / "model.tflite").write_bytes(model[:-1] + bytes([model[-1] ^ 1]))
    (copy / "labels.txt").unlink()
    with pytest.raises(UserError) as raised:
        Bundle.open(copy)
    for part in (
        "labels.txt must be there; it is missing",
        "model.tflite must have the sha256",
        "a file must be in the folder, with a name of letters and digits; received '../secret.txt'",
        "vocab.txt must be listed among the files in bundle.json; it is not",
        "export it again, or copy all its files",
    ):
        assert part in str(raised.value)


def test_labels_in_another_order_are_refused(copy: Path) -> None:
    lines = (copy / "labels.txt").read_text("utf-8").splitlines()
    (copy / "labels.txt").write_text("".join(f"{label}\n" for label in reversed(lines)), encoding="utf-8")
    bundle_folders.describe_again(copy)
    with pytest.raises(UserError, match="labels.txt must hold the labels of bundle.json in their order, .*; export it"):
        Bundle.open(copy)


@pytest.mark.parametrize(
    ("inputs", "received"),
    [({"text": "good"}, "dict"), (None, "NoneType"), (3, "int"), (np.zeros((1, 7), np.int32), "ndarray")],
)
def test_inputs_that_are_no_list_are_refused(exported: Path, inputs: Any, received: str) -> None:
    bundle = Bundle.open(exported / "bundle")
    message = f"^predict takes a list of texts; received an object of type {received}; put it into a list$"
    with pytest.raises(UserError, match=message):
        bundle.predict(inputs)
    with pytest.raises(UserError, match=message):
        bundle.predict_proba(inputs)


def test_texts_may_come_one_after_the_other(exported: Path) -> None:
    bundle = Bundle.open(exported / "bundle")
    assert bundle.predict(text for text in TEXTS[:2]) == bundle.predict(TEXTS[:2])  # type: ignore[arg-type]


def test_folders_without_description_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"a bundle must be a folder with bundle.json, .*; received {tmp_path}$"):
        Bundle.open(tmp_path)


def test_inputs_of_another_length_are_refused(exported: Path) -> None:
    inputs = {name: np.zeros((1, 8), np.int32) for name in ("input_word_ids", "input_mask", "input_type_ids")}
    with pytest.raises(UserError, match="a length must be one of 7, 19; received 8"):
        Bundle.open(exported / "bundle").run(inputs)


def test_file_that_is_no_model_is_refused(copy: Path) -> None:
    (copy / "model.tflite").write_bytes(b"no model")
    bundle = Bundle.open(bundle_folders.describe_again(copy))
    with pytest.raises(UserError, match="model.tflite must run as bundle.json says; the runtime refused it: .*again$"):
        bundle.predict(TEXTS)


def test_separate_pairs_name_both_tasks(tmp_path: Path) -> None:
    texts = {"kind": "embedding", "name": "", "labels": [], "embedding": {"pooling": "cls", "normalize": False}}
    content = {
        "schema_version": 4,
        "task": texts,
        "pairs": {"task": {"kind": "regression", "name": "sts", "labels": []}},
        "signatures": [{"name": "length_9", "length": 9}, {"name": "length_5", "length": 5}],
        "outputs": [{"name": "embedding", "dtype": "float32"}],
        "tokenizer": {"vocab_size": 3, "kind": "byte_bpe", "add_prefix_space": True, "truncation": "tail"},
        "recipe": "dynamic_wi8",
        "files": {},
        "answers": {"file": "answers.jsonl", "sha256": "0" * 64, "tolerance": 0.01},
    }
    description = Description.of(content, tmp_path)
    assert description.task is not None and description.task.embedding is not None
    assert description.task.embedding.pooling == "cls"
    assert description.pair_task is not None and description.pair_task.pairs == "separate"
    assert description.lengths == (5, 9)
    vocabulary = description.vocabulary
    assert [path.name for path in vocabulary.files] == ["vocab.json", "merges.txt"]
    assert (vocabulary.kind, vocabulary.add_prefix_space, vocabulary.truncation) == ("byte_bpe", True, "tail")


def test_public_names_are_lazy() -> None:
    assert pocketbert_runtime.__all__ == ["Bundle", "UserError"]
    with pytest.raises(AttributeError, match="has no attribute 'Bunde'; it has Bundle, UserError"):
        _ = pocketbert_runtime.Bunde
