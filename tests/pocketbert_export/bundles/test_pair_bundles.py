"""Bundles of networks that read the texts of a pair one by one: an encoder of texts, and the head's file."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import bundle_folders
import golden_checks
import numpy as np
import pandas
import pytest
import tiny
import tiny_finetuning
from ai_edge_litert.interpreter import Interpreter
from scipy.special import softmax

import pocketbert as pb
import pocketbert_runtime
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles.model_card import Latency, write_card
from pocketbert_export.bundles.pair_head import head_content
from pocketbert_export.verification.verify import GateFailed, verify_bundle

LABELS = ("no", "maybe", "yes")
CONFIG = tiny.BERT.replace(num_layers=1, initializer_range=0.3)
LENGTHS = (9, 21)


def pairs(count: int, seed: int = 0) -> Examples:
    """Pairs of texts with 2 to 19 words, and a class each."""
    first, second = (tiny_finetuning.examples(count, seed + part) for part in (0, 100))
    labels = np.random.default_rng(seed).integers(0, 3, count).astype(np.int32)
    return Examples(first.texts, second.texts, labels, first.ids, "made for the test")


def model_of(folder: Path, task: TaskConfig, config: Any = CONFIG, seed: int = 5) -> Model:
    bare = tiny_finetuning.write_model(folder / "bare", config)
    model = pb.from_preset(get_task(task).encoder_config(config), task, pb.from_pretrained(bare).tokenizer, seed)
    logits = raw(model, pairs(20, seed=3))
    # So that several classes are the answer to some pair.
    head = next(iter(model.heads.values())).output_projection
    head.bias.assign_sub(np.median(logits, axis=0))
    return model


def raw(model: Model, data: Examples) -> np.ndarray:
    """Logits of the float model, pair by pair, in a batch of two rows."""
    length = max(LENGTHS)
    rows = [
        model(model.tokenizer([first, second], max_length=length))["logits"].numpy()[0]
        for first, second in zip(data.texts, data.pairs or (), strict=True)
    ]
    return np.array(rows).reshape(len(data), -1)


CLASSES = TaskConfig(kind="classification", labels=LABELS, pairs="separate", pooling="mean")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(tmp_path_factory.mktemp("models"), CLASSES)


@pytest.fixture(scope="module")
def bundle(model: Model, tmp_path_factory: pytest.TempPathFactory) -> pb.Bundle:
    folder = tmp_path_factory.mktemp("bundles") / "bundle"
    return pb.export(model, folder, recipe="float32", lengths=LENGTHS, examples=pairs(41))


def test_bundle_answers_as_the_model(model: Model, bundle: pb.Bundle) -> None:
    data = pairs(17, seed=7)
    expected = softmax(raw(model, data).astype(np.float64), axis=1)
    for opened in (bundle, pocketbert_runtime.Bundle.open(bundle.directory)):
        answers = opened.predict(list(zip(data.texts, data.pairs, strict=True)))
        shares = [[answer["probabilities"][label] for label in LABELS] for answer in answers]
        np.testing.assert_allclose(shares, expected, atol=1e-4)
        assert [answer["label"] for answer in answers] == [LABELS[index] for index in expected.argmax(axis=1)]
        assert len({answer["label"] for answer in answers}) > 1
    lines = golden_checks.check_golden_answers(bundle.directory, model)
    assert all(len(line["windows"]) == 2 for line in lines)


@pytest.mark.nightly
@pytest.mark.parametrize("config", ["bert", "roberta", "mobilebert"])
@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_other_heads_and_families(config: str, kind: str, tmp_path: Path) -> None:
    encoder = dataclasses.replace(tiny.FAMILIES[config], num_layers=1)
    labels = LABELS if kind == "multi_label" else ()
    activation: Any = "sigmoid" if kind == "regression" and config == "bert" else None
    task = TaskConfig(kind=kind, labels=labels, pairs="separate", activation=activation)
    model = model_of(tmp_path, task, encoder)
    bundle = pb.export(model, tmp_path / "bundle", recipe="float32", lengths=(21,))
    data = pairs(9, seed=7)
    logits = bundle.predictor().logits(data.texts, data.pairs)
    np.testing.assert_allclose(logits.reshape(9, -1), raw(model, data), atol=2e-4, rtol=1e-3)
    golden_checks.check_golden_answers(bundle.directory, model)


def test_app_can_keep_the_vectors(model: Model, bundle: pb.Bundle) -> None:
    data = pairs(5, seed=8)
    vectors = []
    for texts in (data.texts, data.pairs or ()):
        inputs = model.tokenizer(texts, max_length=21, pad_to=21)
        outputs = bundle.run({name: np.asarray(value) for name, value in inputs.items()})["embedding"]
        tokens, mask = model.encoder(inputs)["sequence_output"].numpy(), np.asarray(inputs["input_mask"])
        means = np.array([row[real == 1].mean(axis=0) for row, real in zip(tokens, mask, strict=True)])
        np.testing.assert_allclose(outputs, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-5)
        vectors.append(outputs)
    runner = Interpreter(str(bundle.directory / "head.tflite")).get_signature_runner("head")
    answers = [
        runner(first=first[np.newaxis], second=second[np.newaxis])["logits"][0]
        for first, second in zip(*vectors, strict=True)
    ]
    np.testing.assert_allclose(answers, raw(model, data), atol=1e-4)


@pytest.mark.parametrize("form", ["model", "bundle"])
def test_embed_gives_the_vectors_that_the_head_reads(
    form: str, model: Model, bundle: pb.Bundle, tmp_path: Path
) -> None:
    data, vectors = pairs(6, seed=12), []
    model.save_pretrained(tmp_path / "model")
    source = tmp_path / "model" if form == "model" else bundle.directory
    for part, texts in enumerate((data.texts, data.pairs or ())):
        path = tmp_path / f"{part}.npy"
        (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
        assert main(["embed", f"--model={source}", f"--input={tmp_path / 'texts.txt'}", f"--output={path}"]) in (
            None,
            0,
        )
        vectors.append(np.load(path))
    # The head on means gives its vectors the length 10.
    first, second = 10 * vectors[0], 10 * vectors[1]
    features = np.concatenate([first, second, np.abs(first - second), first * second], axis=1)
    head = model.heads["classification"].output_projection
    np.testing.assert_allclose(features @ head.kernel.numpy() + head.bias.numpy(), raw(model, data), atol=1e-4)


def test_description_has_both_tasks(model: Model, bundle: pb.Bundle, tmp_path: Path) -> None:
    content = json.loads((bundle.directory / "bundle.json").read_text("utf-8"))
    assert content["task"]["kind"] == "embedding" and content["pairs"]["task"]["labels"] == list(LABELS)
    assert "head.tflite" in content["files"] and content["outcome"]["metric"] == "accuracy"
    assert content["outcome"]["examples"] == 41
    reopened = pb.Bundle.open(bundle.directory)
    assert reopened.pair_task is not None
    assert (reopened.pair_task.kind, reopened.pair_task.pairs) == ("classification", "separate")
    card = (bundle.directory / "README.md").read_text("utf-8")
    assert "with the labels no, maybe, yes" in card
    assert "are for a pair" not in card
    timed = tmp_path / "timed"
    shutil.copytree(bundle.directory, timed)
    write_card(timed, "timed", [Latency(21, 1, 0.75, "litert 2.0", "a machine")])
    assert "Latencies on a computer are for a pair, those on a phone for one text." in (timed / "README.md").read_text()


def test_gate_passes_again_and_names_its_checks(model: Model, bundle: pb.Bundle) -> None:
    verification = verify_bundle(bundle.directory, reference=model, examples=pairs(41))
    verification.require()
    names = {check.name for check in verification.checks}
    assert {"pair task", "pairs: largest difference", "labels", "metric", "head", "outcome", "verification"} <= names
    assert (verification.metric, verification.num_examples, verification.labelled) == ("accuracy", 41, True)
    # Without the model, only the encoder's golden examples are compared.
    verify_bundle(bundle.directory).require()


def test_gate_finds_another_head(model: Model, bundle: pb.Bundle, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(bundle.directory, changed)
    head = model.heads["classification"].output_projection
    kernel = head.kernel.numpy()
    width = CONFIG.hidden_size
    # The texts of a pair in the wrong order.
    head.kernel.assign(np.concatenate([kernel[width : 2 * width], kernel[:width], kernel[2 * width :]]))
    (changed / "head.tflite").write_bytes(head_content(model))
    head.kernel.assign(kernel)
    bundle_folders.describe_again(changed)
    verification = verify_bundle(changed, reference=model, examples=pairs(41), records=False)
    failures = {check.name for check in verification.failures}
    assert {"head", "pairs: largest difference"} <= failures
    with pytest.raises(GateFailed, match="head"):
        verification.require()


def test_gate_finds_another_order_of_labels(model: Model, bundle: pb.Bundle) -> None:
    task = model.tasks[0]
    model.tasks = (dataclasses.replace(task, labels=("yes", "maybe", "no")),)
    try:
        verification = verify_bundle(bundle.directory, reference=model)
    finally:
        model.tasks = (task,)
    assert [check.name for check in verification.failures] == ["pair task"]


def test_bundle_needs_its_head(bundle: pb.Bundle, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(bundle.directory, changed)
    (changed / "head.tflite").unlink()
    with pytest.raises(UserError, match="head.tflite must be there; it is missing"):
        pb.Bundle.open(changed)


def test_single_texts_and_other_outputs_are_refused(model: Model, bundle: pb.Bundle, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reads pairs of texts; received single texts"):
        bundle.predict(["one text"])
    with pytest.raises(UserError, match="float32 outputs and no SavedModel; received one of them"):
        pb.export(model, tmp_path / "bundle", lengths=LENGTHS, write_more=lambda model: None)
    with pytest.raises(UserError, match="must be one of accuracy, .*; received 'spearman'"):
        pb.export(model, tmp_path / "bundle", lengths=LENGTHS, examples=pairs(20), metric="spearman")
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_bundle_command_trains_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start, files = tiny_finetuning.write_model(tmp_path / "start", CONFIG), []
    for name, count in (("train", 70), ("dev", 23)):
        data = pairs(count, seed=count)
        columns = {"text": data.texts, "pair": data.pairs, "label": [LABELS[label] for label in data.labels]}
        pandas.DataFrame(columns).to_csv(tmp_path / f"{name}.csv", index=False)
        files.append(f"--{name}-file={tmp_path / name}.csv")
    options = ["--pair-column=pair", "--pairs=separate", "--epochs=1", "--batch-size=16", "--max-length=21"]
    call = ["bundle", f"--model={start}", *files, *options, "--recipe=float32", "--lengths=9,21"]
    assert main([*call, f"--output={tmp_path / 'out'}"]) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert result["examples"] == 23 and result["metrics"]["bundle"] == pytest.approx(result["metrics"]["model"])
    bundle = pb.Bundle.open(tmp_path / "out" / "bundle")
    assert bundle.pair_task is not None and {*bundle.pair_task.labels} == {*LABELS}
    # The last line is a command, which takes the pairs of the dev file.
    assert main(shlex.split(output.err.splitlines()[-1])[1:]) in (None, 0)
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 23 and {answer["label"] for answer in answers} <= set(LABELS)
    assert main([*call, f"--output={tmp_path / 'out'}"]) == 0
    assert "this bundle is finished" in capsys.readouterr().err


def write_table(path: Path, data: Examples) -> Path:
    columns = {"text": data.texts, "other": data.pairs, "label": [LABELS[label] for label in data.labels]}
    pandas.DataFrame(columns).to_csv(path, index=False)
    return path


@pytest.mark.nightly
def test_commands_export_and_verify(model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder, output = write_table(tmp_path / "dev.csv", pairs(31, seed=9)), tmp_path / "model", tmp_path / "bundle"
    model.save_pretrained(folder)
    file = [f"--file={path}", "--pair-column=other"]
    export = ["export", f"--model={folder}", "--recipe=dynamic_wi8", "--lengths=9,21", f"--output={output}"]
    assert main([*export, *file]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["outcome"]["examples"] == 31
    assert main(["verify", str(output), f"--model={folder}", *file]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    assert main(["evaluate", f"--model={output}", *file]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == pytest.approx(printed["outcome"]["score"])


def test_commands_evaluate_and_predict(bundle: pb.Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = pairs(31, seed=9)
    path = write_table(tmp_path / "dev.csv", data)
    expected = bundle.predict(list(zip(data.texts, data.pairs, strict=True)))
    assert main(["evaluate", f"--model={bundle.directory}", f"--file={path}", "--pair-column=other"]) == 0
    right = [answer["label"] == LABELS[label] for answer, label in zip(expected, data.labels, strict=True)]
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == pytest.approx(np.mean(right))
    assert main(["predict", f"--model={bundle.directory}", f"--input={path}", "--pair-column=other"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["label"] for line in lines] == [answer["label"] for answer in expected]
