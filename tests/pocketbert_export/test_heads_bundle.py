"""Bundles with several heads: answers, and faults that the gate refuses."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
import tiny_heads

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients.serving import check_servable
from pocketbert_export.exporter import export
from pocketbert_export.verification.verify import verify_bundle
from pocketbert_runtime.decision_config import DecisionConfig


@pytest.fixture(scope="module")
def data() -> TaskData:
    return tiny_heads.data(150)


@pytest.fixture(scope="module")
def run(data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    start = tiny_finetuning.write_model(folder / "start")
    config = FinetuneConfig(learning_rate=6e-3, epochs=5, batch_size=16, max_length=21, head_start="random")
    return Path(finetune(start, data, folder / "run", config=config).model_directory)


@pytest.fixture(scope="module")
def bundle(run: Path, data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    return export(run, folder, recipe="dynamic_wi8", lengths=(9, 21), examples=data)


def test_bundle_answers_as_its_model(run: Path, bundle: Bundle, data: TaskData) -> None:
    texts = data.dev.first_texts(31).texts
    model = pb.from_pretrained(run)
    same = 0
    for one, other in zip(bundle.predict(texts), model.predict(texts), strict=True):
        spans = [[(span["text"], span["label"]) for span in answer["slots"]["spans"]] for answer in (one, other)]
        same += one["mood"]["label"] == other["mood"]["label"] and spans[0] == spans[1]
    # int8 may turn near ties.
    assert same >= 29
    assert bundle.output_names == ("mood_logits", "slots_token_logits")
    assert [task.name for task in (bundle.task or tiny_heads.task()).tasks or ()] == ["mood", "slots"]
    assert not (bundle.directory / "labels.txt").exists()


def test_gate_decides_by_each_head(bundle: Bundle) -> None:
    record = json.loads((bundle.directory / "verification.json").read_text("utf-8"))
    names = {check["name"] for check in record["checks"]}
    assert {"labels: mood", "labels: slots", "metric"} <= names and record["passed"]
    assert record["metric"] == "mean_of_heads"
    card = (bundle.directory / "README.md").read_text("utf-8")
    assert "with the heads mood (classification: high, low), slots (token-classification: O, B-BLAME" in card


@pytest.mark.nightly
def test_heads_keep_their_thresholds(run: Path, data: TaskData, tmp_path: Path) -> None:
    model, texts = pb.from_pretrained(run), data.dev.first_texts(31).texts
    certain = np.sort([max(answer["mood"]["probabilities"].values()) for answer in model.predict(texts)])
    # Between two texts, so that rounding moves none.
    for decisions, shown in (
        (DecisionConfig(reject_below=float(certain[8] + certain[9]) / 2), "Rejected answers of mood"),
        (DecisionConfig(thresholds=(0.999, 0.001)), "Decision thresholds of mood | high 0.999, low 0.001"),
    ):
        mood, slots = (model.task or tiny_heads.task()).tasks or ()
        parts = dataclasses.replace(mood, decisions=decisions), slots
        model.tasks = (dataclasses.replace(model.tasks[0], tasks=parts),)
        model.save_pretrained(tmp_path / "model", overwrite=True)
        options: dict[str, Any] = {"recipe": "float32", "lengths": (21,), "examples": data, "overwrite": True}
        folder = export(tmp_path / "model", tmp_path / "bundle", **options).directory
        described = json.loads((folder / "bundle.json").read_text("utf-8"))["task"]["tasks"]
        assert described[0]["decisions"] == json.loads(json.dumps(dataclasses.asdict(decisions)))
        assert "decisions" not in described[1]
        moods = [answer["mood"] for answer in Bundle.open(folder).predict(texts)]
        if decisions.thresholds is None:
            assert sum(answer["label"] is None for answer in moods) == 9
        else:
            expected = ["high" if answer["probabilities"]["high"] > 0.999 else "low" for answer in moods]
            assert [answer["label"] for answer in moods] == expected
        assert json.loads((folder / "verification.json").read_text("utf-8"))["passed"]
        assert shown in (folder / "README.md").read_text("utf-8")


def with_heads(bundle: Bundle, folder: Path, change: Any) -> Path:
    """A copy of a bundle whose heads in bundle.json are changed."""
    shutil.copytree(bundle.directory, folder)
    description = json.loads((folder / "bundle.json").read_text("utf-8"))
    change(description)
    (folder / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    return folder


def failures(path: Path, model: pb.Model, data: TaskData) -> set[str]:
    verification = verify_bundle(path, reference=model, examples=data.dev)
    return {check.name for check in verification.checks if not check.passed}


def test_gate_refuses_swapped_labels(run: Path, bundle: Bundle, data: TaskData, tmp_path: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        description["task"]["tasks"][0]["labels"].reverse()

    assert "task" in failures(with_heads(bundle, tmp_path / "bundle", change), pb.from_pretrained(run), data)


@pytest.mark.nightly
def test_gate_refuses_a_swapped_head(run: Path, data: TaskData, tmp_path: Path) -> None:
    """Rows of one head's map that change places change answers of that head alone, and the gate names it."""
    for name, axis in (("mood", [1, 0]), ("slots", [0, 3, 4, 1, 2])):
        wrong = pb.from_pretrained(run)
        head = wrong.heads["several"].parts[name].output_projection
        head.kernel.assign(head.kernel.numpy()[:, axis])
        head.bias.assign(head.bias.numpy()[axis])
        wrong.save_pretrained(tmp_path / f"wrong-{name}")
        bundle = export(tmp_path / f"wrong-{name}", tmp_path / name, recipe="float32", lengths=(21,))
        failed = failures(bundle.directory, pb.from_pretrained(run), data)
        assert f"labels: {name}" in failed and "metric" in failed
        other = "slots" if name == "mood" else "mood"
        assert f"labels: {other}" not in failed


def test_two_heads_in_each_others_place_are_refused(data: TaskData, run: Path, tmp_path: Path) -> None:
    """Two heads of one shape: only names tell them apart."""
    columns = tiny_heads.table(40, 7)
    both = {**columns, "other": columns["mood"][::-1]}
    two = pb.data.heads(both, {"mood": "classification", "other": "classification"}, dev=both)
    model = pb.from_preset(tiny_finetuning.CONFIG, two.task, pb.from_pretrained(run).tokenizer, seed=4)
    parts = model.heads["several"].parts
    for head in parts.values():
        random = np.random.default_rng(len(head.weights))
        head.output_projection.kernel.assign(random.normal(size=head.output_projection.kernel.shape))
    parts["other"].output_projection.kernel.assign(-2 * parts["other"].output_projection.kernel)
    model.save_pretrained(tmp_path / "model")
    bundle = export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=(21,))
    kernels = [head.output_projection.kernel.numpy() for head in parts.values()]
    for head, kernel in zip(parts.values(), kernels[::-1], strict=True):
        head.output_projection.kernel.assign(kernel)
    assert {"labels: mood", "labels: other"} <= failures(bundle.directory, model, two)


def test_commands_read_and_answer(
    run: Path, bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = tiny_heads.table(31, 2)
    rows = zip(columns["text"], columns["mood"], columns["slots"], strict=True)
    lines = [json.dumps({"text": text, "mood": mood, "tags": tags}) for text, mood, tags in rows]
    (tmp_path / "dev.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    results = []
    for model in (run, bundle.directory):
        file = ["evaluate", f"--model={model}", f"--file={tmp_path / 'dev.jsonl'}", "--label-column=slots=tags"]
        assert cli.main(file) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["metrics"].keys() == results[1]["metrics"].keys()
    assert results[1]["metrics"]["mean_of_heads"] > 0.85 and results[0]["examples"] == 31
    (tmp_path / "texts.txt").write_text("the superb film\n", encoding="utf-8")
    flags = [f"--input={tmp_path / 'texts.txt'}", f"--output={tmp_path / 'answers.csv'}"]
    assert cli.main(["predict", f"--model={bundle.directory}", *flags]) == 0
    header = (tmp_path / "answers.csv").read_text("utf-8").splitlines()[0]
    assert header == "text,mood_label,mood_probability_high,mood_probability_low,slots_spans"


def write_partial(folder: Path, columns: dict[str, list[Any]]) -> dict[str, Path]:
    """A file for each head."""
    files = {}
    for name, rows in (("mood", range(0, 17)), ("slots", range(11, 31))):
        lines = [json.dumps({"text": columns["text"][row], name: columns[name][row]}) for row in rows]
        files[name] = folder / f"{name}.jsonl"
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def test_gate_and_scores_of_partial_labels(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each head's metric counts its own texts, and the gate compares both heads."""
    columns = tiny_heads.table(31, 2)
    files = write_partial(tmp_path, columns)
    file = "--file=" + ",".join(f"{name}={path}" for name, path in files.items())
    flags = ["--recipe=float32", "--lengths=21", f"--output={tmp_path / 'bundle'}"]
    assert cli.main(["export", f"--model={run}", file, *flags]) == 0
    capsys.readouterr()
    record = json.loads((tmp_path / "bundle/verification.json").read_text("utf-8"))
    checks = {check["name"]: check for check in record["checks"]}
    assert {"labels: mood", "labels: slots", "metric"} <= checks.keys() and record["passed"]
    assert cli.main(["evaluate", f"--model={tmp_path / 'bundle'}", file]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["examples"] == 31 and result["source"] == f"{files['mood']} and {files['slots']}"
    answers = pb.from_pretrained(run).predict(columns["text"])
    right = [answers[row]["mood"]["label"] == columns["mood"][row] for row in range(17)]
    assert result["metrics"]["mood_accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.nightly
def test_wrong_head_fails_by_its_own_texts(run: Path, tmp_path: Path) -> None:
    files = write_partial(tmp_path, tiny_heads.table(31, 2))
    both = pb.data.heads(files, tiny_heads.KINDS, dev=files)
    wrong = pb.from_pretrained(run)
    head = wrong.heads["several"].parts["slots"].output_projection
    head.kernel.assign(head.kernel.numpy()[:, [0, 3, 4, 1, 2]])
    head.bias.assign(head.bias.numpy()[[0, 3, 4, 1, 2]])
    wrong.save_pretrained(tmp_path / "wrong")
    bundle = export(tmp_path / "wrong", tmp_path / "other", recipe="float32", lengths=(21,))
    failed = failures(bundle.directory, pb.from_pretrained(run), both)
    assert {"labels: slots", "metric"} <= failed and "labels: mood" not in failed


def test_saved_models_with_texts_are_refused(bundle: Bundle) -> None:
    with pytest.raises(UserError, match=r"has one head; received mood \(classification: high, low\), slots"):
        check_servable(bundle.task, bundle.vocabulary)
