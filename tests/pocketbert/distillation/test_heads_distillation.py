"""Distillation of several heads: the weighted sum of the losses of the heads, and runs of the methods."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import tiny_heads
from safetensors.numpy import load_file
from scipy.special import expit, log_softmax, softmax

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.confidence import confident
from pocketbert.distillation.methods import get_method
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.predictions import logits_by_name, prediction_terms
from pocketbert.distillation.run import distill
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import UserError
from pocketbert.tasks.registry import get_task
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.stage import Stage

METHODS = tiny_distillation.tag_methods(16)
TINYBERT = METHODS["tinybert"]
PREDICTIONS = get_method("tinybert")(max_length=19, without=("embedding", "transformer"), prediction_epochs=1)


@pytest.fixture(scope="module")
def data() -> TaskData:
    return tiny_heads.data(150)


@pytest.fixture(scope="module")
def teacher(data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    bare = tiny_finetuning.write_model(folder / "bare", tiny_distillation.TEACHER)
    options = FinetuneConfig(learning_rate=6e-3, epochs=6, batch_size=16, max_length=19)
    result = finetune(bare, data, folder / "run", config=options)
    assert result.metrics["mean_of_heads"] > 0.9
    return Path(result.model_directory)


@pytest.fixture(scope="module")
def untrained(data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher with random weights, some of whose answers are surer than others."""
    folder = tmp_path_factory.mktemp("untrained")
    bare = tiny_finetuning.write_model(folder / "bare", tiny_distillation.TEACHER)
    config = tiny_distillation.TEACHER.replace(initializer_range=0.4)
    pb.from_preset(config, data.task, pb.from_pretrained(bare).tokenizer, seed=3).save_pretrained(folder / "model")
    return folder / "model"


def test_prediction_loss_sums_the_heads() -> None:
    task = TaskConfig(
        kind="several",
        tasks=(
            TaskConfig(kind="classification", name="mood", labels=("a", "b", "c"), weight=0.5),
            TaskConfig(kind="token_classification", name="slots", labels=("O", "B-X", "I-X"), weight=2.0),
            TaskConfig(kind="multi_label", name="topics", labels=("x", "y")),
            TaskConfig(kind="regression", name="stars"),
        ),
    )
    random = np.random.default_rng(0)
    mask = (np.arange(7) < np.array([7, 4, 6])[:, np.newaxis]).astype(np.int32)
    shapes = ((3, 3), (3, 7, 3), (3, 2), (3,))
    teachers, students = ([random.normal(0, 3, shape).astype(np.float32) for shape in shapes] for _ in range(2))
    stage: Any = Stage.__new__(Stage)
    object.__setattr__(stage, "task", task)
    object.__setattr__(stage, "weights", {"prediction": 1.0})
    terms = prediction_terms(
        stage,
        logits_by_name([tf.constant(array) for array in teachers], task),
        {"logits": [tf.constant(array) for array in students]},
        {"input_mask": tf.constant(mask)},
        temperature=2.0,
    )

    def soft(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return -(softmax(one / 2, axis=-1) * log_softmax(other / 2, axis=-1)).sum(-1)

    probability, logits = expit(teachers[2] / 2), students[2] / 2
    binary = np.logaddexp(0, logits) - probability * logits
    expected = 0.5 * soft(teachers[0], students[0]).mean() + 2 * soft(teachers[1], students[1])[mask == 1].mean()
    expected += binary.mean() + ((teachers[3] - students[3]) ** 2).mean()
    # float32 sums of some terms.
    assert float(terms["prediction"]) == pytest.approx(expected, rel=1e-5)


# A student learns the heads from a file of a teacher's answers in test_heads_soft_labels.py.
@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_student_learns_both_heads(method: Any, data: TaskData, teacher: Path, tmp_path: Path) -> None:
    result = distill(tiny_distillation.STUDENT, data, tmp_path / "run", teacher=teacher, method=method)
    assert result.metrics["mood_accuracy"] > 0.85 and result.metrics["slots_f1"] > 0.85
    assert result.teacher_metrics is not None and result.teacher_metrics["mean_of_heads"] > 0.9
    (answer,) = pb.from_pretrained(result.model_directory).predict(["the superb film"])
    assert answer["mood"]["label"] == "high"
    assert [(span["text"], span["label"]) for span in answer["slots"]["spans"]] == [("superb", "PRAISE")]


@pytest.mark.nightly
def test_cached_teacher_gives_the_same_student(data: TaskData, teacher: Path, tmp_path: Path) -> None:
    plan = plan_distillation(tiny_distillation.STUDENT, data, teacher=teacher, method=TINYBERT, run=RunConfig())
    cache_stages(plan, tmp_path / "cache", dtype="float32")
    metrics = []
    for name, source in (("live", teacher), ("cached", CachedTeacher(tmp_path / "cache", teacher))):
        result = distill(tiny_distillation.STUDENT, data, tmp_path / name, teacher=source, method=TINYBERT)
        metrics.append(result.metrics)
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-6)


def test_labels_join_the_predictions(data: TaskData, untrained: Path) -> None:
    method = dataclasses.replace(TINYBERT, label_weight=0.25)
    plan = plan_distillation(tiny_distillation.STUDENT, data, teacher=untrained, method=method, run=RunConfig())
    stage = plan.stages[-1]
    assert stage.weights == {"prediction": 0.75, "labels": 0.25}
    model, student = pb.from_pretrained(untrained), pb.from_preset(tiny_distillation.STUDENT, data.task, seed=2)
    tokenizer, train = model.tokenizer, data.train
    encoded = get_task(data.task).encode(train, tokenizer, 19)  # type: ignore[attr-defined]
    inputs, labels = encoded.batch(np.arange(5))
    batch = {**inputs, "labels": tf.constant(labels)}
    features = student.features(inputs, {"logits": ()})
    targets = logits_by_name(model.features(inputs, {"logits": ()})["logits"], data.task)
    terms = prediction_terms(stage, targets, features, batch)
    expected = get_task(data.task).loss(student(inputs), batch["labels"], inputs["input_mask"])
    assert float(terms["labels"]) == pytest.approx(float(expected), rel=1e-6)
    assert labels is not None and labels.shape == (5, 1 + 19)


def partly_labelled() -> dict[str, list[Any]]:
    """Few texts have labels for each head."""
    columns = tiny_heads.table(150, 1)
    columns["slots"] = [tags if row < 9 else "" for row, tags in enumerate(columns["slots"])]
    columns["mood"] = [mood if row > 6 else "" for row, mood in enumerate(columns["mood"])]
    return columns


@pytest.mark.nightly
def test_teacher_teaches_each_head_on_each_text(teacher: Path, tmp_path: Path) -> None:
    """The teacher's predictions on all texts make up for the few labels."""
    partial = pb.data.heads(partly_labelled(), tiny_heads.KINDS, dev=tiny_heads.table(31, 2))
    method = dataclasses.replace(TINYBERT, label_weight=0.25)
    result = distill(tiny_distillation.STUDENT, partial, tmp_path / "run", teacher=teacher, method=method)
    assert result.metrics["mood_accuracy"] > 0.85 and result.metrics["slots_f1"] > 0.85


def test_labels_teach_where_there_are_some(untrained: Path) -> None:
    """The term is the mean over these texts."""
    columns = partly_labelled()
    partial = pb.data.heads(columns, tiny_heads.KINDS, dev=tiny_heads.table(31, 2))
    student = pb.from_preset(tiny_distillation.STUDENT, partial.task, seed=2)
    task, tokenizer = get_task(partial.task), pb.from_pretrained(untrained).tokenizer
    encoded = task.encode(partial.train, tokenizer, 19)  # type: ignore[attr-defined]
    inputs, labels = encoded.batch(np.arange(13))
    outputs = student(inputs)
    logits = outputs["mood_logits"].numpy()[7:]
    moods = [("high", "low").index(mood) for mood in columns["mood"][7:13]]
    expected = -log_softmax(logits, axis=1)[np.arange(6), moods].mean()
    # The tags of the first nine texts, on the first token of each word: words of this vocabulary are one token.
    tokens = log_softmax(outputs["slots_token_logits"].numpy(), axis=2)
    tags = [
        -tokens[row, 1 + word, tiny_heads.TAGS.index(tag)]
        for row in range(9)
        for word, tag in enumerate(columns["slots"][row][:17])
    ]
    expected += np.mean(tags)
    received = task.loss(outputs, tf.constant(labels), inputs["input_mask"])
    assert float(received) == pytest.approx(float(expected), rel=1e-5)


@pytest.fixture(scope="module")
def texts() -> dict[str, list[Any]]:
    """Columns of different texts, none of which is in the dev split."""
    columns, known = tiny_heads.table(260, 1), {*tiny_heads.table(31, 2)["text"]}
    places = {text: row for row, text in enumerate(columns["text"]) if text not in known}
    return {name: [values[row] for row in places.values()] for name, values in columns.items()}


def part(columns: dict[str, list[Any]], rows: slice) -> dict[str, list[Any]]:
    return {name: values[rows] for name, values in columns.items()}


def with_and_without_labels(texts: dict[str, list[Any]]) -> dict[str, TaskData]:
    """Few labelled texts; these with all others unlabelled; and all with labels, which predictions replace."""
    dev = tiny_heads.table(31, 2)
    labelled = pb.data.heads(part(texts, slice(47)), tiny_heads.KINDS, dev=dev)
    both = pb.data.with_unlabelled(labelled, {"text": [*texts["text"], dev["text"][3]]})
    assert both.unlabelled is not None and both.unlabelled.read_texts == texts["text"][47:]
    return {"labelled": labelled, "both": both, "everything": pb.data.heads(texts, tiny_heads.KINDS, dev=dev)}


def test_texts_without_labels_are_read_as_those_with(texts: dict[str, list[Any]], untrained: Path) -> None:
    encoded = {}
    for name, examples in with_and_without_labels(texts).items():
        plan = plan_distillation(
            pb.TeacherLayers((1,)), examples, teacher=untrained, method=PREDICTIONS, run=RunConfig()
        )
        (stage,) = plan.stages
        encoded[name] = plan.encoded(stage)
    np.testing.assert_array_equal(encoded["both"].word_ids, encoded["everything"].word_ids)
    np.testing.assert_array_equal(encoded["both"].offsets, encoded["everything"].offsets)
    assert len(encoded["both"]) == len(texts["text"]) > len(encoded["labelled"]) == 47


@pytest.mark.nightly
def test_texts_without_labels_teach_as_those_with(texts: dict[str, list[Any]], teacher: Path, tmp_path: Path) -> None:
    weights = {}
    for name, examples in with_and_without_labels(texts).items():
        result = distill(pb.TeacherLayers((1,)), examples, tmp_path / name, teacher=teacher, method=PREDICTIONS)
        weights[name] = load_file(Path(result.model_directory) / "model.safetensors")
    both, everything, labelled = (weights[name] for name in ("both", "everything", "labelled"))
    assert both.keys() == everything.keys()
    assert all(np.array_equal(both[name], everything[name]) for name in both)
    assert not all(np.array_equal(both[name], labelled[name]) for name in both)


def test_all_heads_must_be_sure(
    texts: dict[str, list[Any]], untrained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = part(texts, slice(47))
    # Few texts have tags.
    columns["slots"] = [tags if row % 5 else "" for row, tags in enumerate(columns["slots"])]
    data = pb.data.heads(columns, tiny_heads.KINDS, dev=tiny_heads.table(31, 2))
    others, model = texts["text"][47:], pb.from_pretrained(untrained)
    inputs = model.tokenizer(others, max_length=19)
    outputs, lengths = model(dict(inputs)), inputs["input_mask"].numpy().sum(axis=1)
    moods = softmax(outputs["mood_logits"].numpy().astype(np.float64), axis=1).max(axis=1)
    tags = softmax(outputs["slots_token_logits"].numpy().astype(np.float64), axis=2).max(axis=2)
    # Each token of this vocabulary is a word; the first and the last ones are special.
    words = np.array([row[1 : length - 1].min() for row, length in zip(tags, lengths, strict=True)])
    ordered = np.sort(np.minimum(moods, words))
    assert 0 < (moods < words).sum() < len(words)
    # Between two texts, so that rounding moves none.
    least = float(ordered[22] + ordered[23]) / 2
    sure = pb.data.with_unlabelled(data, {"text": others}, least_confidence=least)
    capsys.readouterr()
    assert len(confident(sure, model, 19).unlabelled) == len(others) - 23
    assert f"{len(others) - 23} of {len(others)} unlabelled texts have a label" in capsys.readouterr().err


def test_scores_have_no_confidence(texts: dict[str, list[Any]]) -> None:
    rows = {**part(texts, slice(9)), "stars": [float(row) for row in range(9)]}
    data = pb.data.heads(rows, {"mood": "classification", "stars": "regression"}, dev=rows)
    assert pb.data.with_unlabelled(data, {"text": ["a b"]}).unlabelled is not None
    with pytest.raises(
        UserError, match=r"needs labels with probabilities; received stars \(regression\); leave it out"
    ):
        pb.data.with_unlabelled(data, {"text": ["a b"]}, least_confidence=0.5)


@pytest.mark.nightly
def test_unlabelled_file_from_the_command_line(texts: dict[str, list[Any]], teacher: Path, tmp_path: Path) -> None:
    for name, columns in (("train", part(texts, slice(41))), ("dev", tiny_heads.table(17, 2))):
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "more.txt").write_text("\n".join(texts["text"][41:]), encoding="utf-8")
    shared = ["--method=tinybert", f"--teacher={teacher}", "--teacher-layers=1", "--max-length=19",
              f"--train-file={tmp_path / 'train.jsonl'}", f"--dev-file={tmp_path / 'dev.jsonl'}",
              "--heads=mood:classification,slots:token_classification", f"--unlabelled-file={tmp_path / 'more.txt'}",
              "--without=embedding,transformer", "--prediction-epochs=1"]  # fmt: skip
    assert cli.main(["cache-teacher", *shared, f"--output={tmp_path / 'cache'}", "--dtype=float32"]) == 0
    results = []
    for name, cache in (("live", []), ("cached", [f"--teacher-cache={tmp_path / 'cache'}"])):
        assert cli.main(["distill", *shared, *cache, f"--output={tmp_path / name}"]) == 0
        results.append(json.loads((tmp_path / name / "result.json").read_text("utf-8")))
    live, cached = results
    assert live["steps"] == cached["steps"] == -(-len(texts["text"]) // 32)
    assert live["metrics"] == pytest.approx(cached["metrics"], abs=1e-6)
    assert "unlabelled_file" in (tmp_path / "live/run.toml").read_text("utf-8")


def test_other_heads_are_refused(untrained: Path, tmp_path: Path) -> None:
    columns = tiny_heads.table(30, 4)
    renamed = {**columns, "feeling": columns["mood"]}
    other = pb.data.heads(renamed, {"feeling": "classification", "slots": "token_classification"}, dev=renamed)
    with pytest.raises(UserError, match=r"the heads of the task, feeling \(classification: high, low\), slots"):
        distill(tiny_distillation.STUDENT, other, tmp_path / "run", teacher=untrained, method=TINYBERT)
