"""Distillation of several heads: the weighted sum of the losses of the heads, and runs of the methods."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import tiny_heads
from scipy.special import expit, log_softmax, softmax

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.cache_teacher import cache_stages
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


@pytest.mark.one_of_each("minilmv2", "hsk")
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


def test_labels_join_the_predictions(data: TaskData, teacher: Path) -> None:
    method = dataclasses.replace(TINYBERT, label_weight=0.25)
    plan = plan_distillation(tiny_distillation.STUDENT, data, teacher=teacher, method=method, run=RunConfig())
    stage = plan.stages[-1]
    assert stage.weights == {"prediction": 0.75, "labels": 0.25}
    model, student = pb.from_pretrained(teacher), pb.from_preset(tiny_distillation.STUDENT, data.task, seed=2)
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


def test_teacher_teaches_each_head_on_each_text(teacher: Path, tmp_path: Path) -> None:
    """Few texts have labels for each head; the teacher's predictions on all of them make up for that."""
    columns = tiny_heads.table(150, 1)
    columns["slots"] = [tags if row < 9 else "" for row, tags in enumerate(columns["slots"])]
    columns["mood"] = [mood if row > 6 else "" for row, mood in enumerate(columns["mood"])]
    partial = pb.data.heads(columns, tiny_heads.KINDS, dev=tiny_heads.table(31, 2))
    method = dataclasses.replace(TINYBERT, label_weight=0.25)
    result = distill(tiny_distillation.STUDENT, partial, tmp_path / "run", teacher=teacher, method=method)
    assert result.metrics["mood_accuracy"] > 0.85 and result.metrics["slots_f1"] > 0.85
    # Labels teach where there are some: the term is the mean over these texts.
    student = pb.from_preset(tiny_distillation.STUDENT, partial.task, seed=2)
    task, tokenizer = get_task(partial.task), pb.from_pretrained(teacher).tokenizer
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


def test_other_heads_are_refused(data: TaskData, teacher: Path, tmp_path: Path) -> None:
    columns = tiny_heads.table(30, 4)
    renamed = {**columns, "feeling": columns["mood"]}
    other = pb.data.heads(renamed, {"feeling": "classification", "slots": "token_classification"}, dev=renamed)
    with pytest.raises(UserError, match=r"the heads of the task, feeling \(classification: high, low\), slots"):
        distill(tiny_distillation.STUDENT, other, tmp_path / "run", teacher=teacher, method=TINYBERT)
