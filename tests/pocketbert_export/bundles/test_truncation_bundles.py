"""Bundles of models that cut long texts at the front or in the middle."""

from __future__ import annotations

import json
from pathlib import Path

import golden_checks
import numpy as np
import pytest
import tensorflow as tf

import pocketbert as pb
import pocketbert_runtime
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.files import sha256
from pocketbert.tokenizers.opening import with_truncation
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients.mediapipe_files import check_client
from pocketbert_export.clients.serving import write_serving_model
from pocketbert_export.exporter import export
from pocketbert_export.verification.verify import verify_bundle

LENGTH = 19
TEXT = "the film is good . a dull film walks the cat is bad ! the sun the rain not good dog the dull cat walked"
# As in test_export_convert.
TOLERANCE = 2e-4


def directory(source: Path, folder: Path, truncation: str) -> Path:
    model = pb.from_pretrained(source)
    model.tokenizer = with_truncation(model.tokenizer, truncation)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("tail", marks=pytest.mark.nightly),
        "head-tail:5",
        pytest.param("only-second", marks=pytest.mark.nightly),
    ],
)
def exported(request: pytest.FixtureRequest, small_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model/` and `bundle/` of a model with the truncation in the name of their folder."""
    folder = tmp_path_factory.mktemp("bundles") / request.param
    directory(small_directory, folder / "model", request.param)
    export(folder / "model", folder / "bundle", recipe="float32", lengths=(7, LENGTH))
    return folder


def kept(ids: list[int], truncation: str, room: int) -> list[int]:
    """The tokens of a single text by the rule, without our tokenizers' own cut."""
    head = {"tail": 0, "head-tail:5": 5}.get(truncation, room)
    return [*ids[:head], *ids[len(ids) - (room - head) :]] if head < room else ids[:room]


def test_bundle_answers_for_the_kept_tokens(exported: Path, small_directory: Path) -> None:
    model = pb.from_pretrained(small_directory)
    ids = kept(model.tokenizer.tokenize([TEXT]).to_list()[0], exported.name, LENGTH - 2)
    row = [model.tokenizer.cls_token_id, *ids, model.tokenizer.sep_token_id]
    assert len(row) == LENGTH
    inputs = {"input_word_ids": [row], "input_mask": [[1] * LENGTH], "input_type_ids": [[0] * LENGTH]}
    expected = model({name: tf.constant(value) for name, value in inputs.items()})["logits"].numpy()[0]
    for bundle in (Bundle.open(exported / "bundle"), pocketbert_runtime.Bundle.open(exported / "bundle")):
        received = bundle.predictor().logits([TEXT])[0]
        np.testing.assert_allclose(received, expected, atol=TOLERANCE * np.abs(expected).max())
    own = pb.from_pretrained(exported / "model")
    np.testing.assert_allclose(own(own.tokenizer([TEXT], max_length=LENGTH))["logits"].numpy()[0], expected, atol=1e-5)
    golden_checks.check_golden_answers(exported / "bundle", own)


@pytest.mark.nightly
def test_graph_with_texts_cuts_alike(exported: Path, tmp_path: Path) -> None:
    model = pb.from_pretrained(exported / "model")
    write_serving_model(model, tmp_path / "1", LENGTH)
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    single = signatures["serving_default"](text=tf.constant([TEXT]))["logits"].numpy()
    pair = signatures["pairs"](text=tf.constant(["a dull film"]), pair=tf.constant([TEXT]))["logits"].numpy()
    expected = model(model.tokenizer([TEXT], max_length=LENGTH))["logits"].numpy()
    np.testing.assert_allclose(single, expected, atol=TOLERANCE * np.abs(expected).max())
    expected = model(model.tokenizer(["a dull film"], [TEXT], max_length=LENGTH))["logits"].numpy()
    np.testing.assert_allclose(pair, expected, atol=TOLERANCE * np.abs(expected).max())


def test_gate_finds_another_truncation(exported: Path, small_directory: Path, small_bundle: Path) -> None:
    assert json.loads((exported / "bundle" / "bundle.json").read_text())["tokenizer"]["truncation"] == exported.name
    checks = {
        check.name: check
        for check in verify_bundle(
            exported / "bundle", reference=pb.from_pretrained(small_directory), records=False
        ).checks
    }
    assert not checks["tokenizer"].passed
    assert f"truncation={exported.name}; the model has head" in checks["tokenizer"].reason
    assert "truncation" not in (small_bundle / "bundle.json").read_text("utf-8")


def test_prediction_says_how_texts_are_cut(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text(f"the cat\n{TEXT}\n{TEXT} dog\n", encoding="utf-8")
    assert cli.main(["predict", f"--model={exported / 'bundle'}", f"--input={tmp_path / 'texts.txt'}"]) in (None, 0)
    log = capsys.readouterr().err
    assert log.count(f"2 of 3 texts are longer than {LENGTH} tokens and are cut ({exported.name})") == 1
    (tmp_path / "texts.csv").write_text(f"text,label\nthe cat,good\n{TEXT},bad\n{TEXT} dog,fair\n", encoding="utf-8")
    command = ["verify", str(exported / "bundle"), f"--model={exported / 'model'}", f"--file={tmp_path / 'texts.csv'}"]
    assert cli.main(command) in (None, 0)
    log = capsys.readouterr().err
    assert log.count(f"2 of 3 texts are longer than {LENGTH} tokens and are cut ({exported.name})") == 1


def test_unknown_truncation_is_refused(exported: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for file in (exported / "bundle").iterdir():
        (bundle / file.name).write_bytes(file.read_bytes())
    content = json.loads((bundle / "bundle.json").read_text("utf-8"))
    for value in ("head", "head-tail:0", "middle", 3):
        content["tokenizer"]["truncation"] = value
        (bundle / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(UserError, match=r"tokenizer\.truncation"):
            Bundle.open(bundle)


def test_lengths_without_room_are_refused(small_directory: Path, tmp_path: Path) -> None:
    model = directory(small_directory, tmp_path / "model", "head-tail:17")
    with pytest.raises(UserError, match="needs N below 17, .*length=19 .*; received head-tail:17"):
        export(model, tmp_path / "bundle", recipe="float32", lengths=(7, LENGTH))
    assert not (tmp_path / "bundle").exists()


def test_clients_that_cut_ends_are_refused(exported: Path) -> None:
    vocabulary = pb.from_pretrained(exported / "model").tokenizer.vocabulary
    task = TaskConfig(kind="classification", name="mood", labels=("low", "high"))
    with pytest.raises(UserError, match=f"cuts the ends of texts .*; received a model with {exported.name}"):
        check_client(task, vocabulary, has_pairs=False)


def test_bytes_without_the_option(small_directory: Path, tmp_path: Path) -> None:
    model = directory(small_directory, tmp_path / "model", "head")
    names = sorted(path.name for path in model.iterdir())
    assert [sha256(model / name) for name in names] == [sha256(small_directory / name) for name in names]
