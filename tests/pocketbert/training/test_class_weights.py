"""Class weights, compared with scikit-learn and a weighted cross-entropy in NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
import tiny_questions
import tiny_tasks
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.tasks.linear_fits import fit_linear
from pocketbert.tasks.registry import get_task, supervised_task
from pocketbert.training.class_weights import class_weights
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.objectives.finetuning import Finetuning, finetuning_stage

THREE = TaskConfig(kind="classification", labels=("low", "middle, really", "a=b"))
TAGS = TaskConfig(kind="token_classification", labels=("O", "B-PER", "I-PER"))
SEVERAL = TaskConfig(kind="multi_label", labels=("angry", "funny", "sad", "new"))
QUESTIONS = TaskConfig(kind="span")


def test_balanced_weights_match_scikit_learn() -> None:
    labels = np.repeat(np.array([2, 0, 1], np.int32), (17, 5, 41))
    weights = class_weights("balanced", THREE, labels)
    assert weights is not None and weights.dtype == np.float32
    np.testing.assert_allclose(weights, compute_class_weight("balanced", classes=np.arange(3), y=labels), rtol=1e-6)
    # A class that does not occur takes no part.
    labels = labels[labels != 1]
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=labels)
    weights = class_weights("balanced", THREE, labels)
    assert weights is not None
    np.testing.assert_allclose(weights[[0, 2]], expected, rtol=1e-6)
    assert weights[1] == 1


def test_balanced_tags_match_scikit_learn(tmp_path: Path) -> None:
    path = tmp_path / "train.conll"
    path.write_text("Ada B-PER\nKing I-PER\nsaw O\nit O\n\nno O\none O\nBob B-PER\nsaw O\n", encoding="utf-8")
    task = supervised_task(TAGS)
    tags = task.class_targets(task.read(path))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=[0] * 5 + [1] * 2 + [2])
    weights = class_weights("balanced", TAGS, tags)
    assert weights is not None
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_balanced_labels_are_negatives_per_positive() -> None:
    given = np.array([[1, 0, 1, 0], [0, 0, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0]], np.int32)
    weights = class_weights("balanced", SEVERAL, given)
    assert weights is not None and weights.dtype == np.float32
    # All examples have the third label, and none the fourth.
    np.testing.assert_allclose(weights, [4.0, 2 / 3, 1.0, 1.0], rtol=1e-6)
    with pytest.raises(UserError, match="class_weights=balanced needs training examples of different classes"):
        class_weights("balanced", SEVERAL, given[:, [2, 3, 2, 3]])


def test_balanced_questions_match_scikit_learn(tmp_path: Path) -> None:
    questions = QuestionFile(tiny_questions.write_questions(tmp_path / "mixed.json", 23, 4, impossible=0.3))
    count = sum(question.impossible for question in questions)
    assert 0 < count < 11
    expected = compute_class_weight("balanced", classes=np.arange(2), y=[0] * (23 - count) + [1] * count)
    weights = class_weights("balanced", QUESTIONS, get_task(QUESTIONS).class_targets(questions))
    assert weights is not None
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    answered = QuestionFile(tiny_questions.write_questions(tmp_path / "answered.json", 7, 4))
    with pytest.raises(UserError, match="different classes, 'has_answer', 'no_answer'; all have the same"):
        class_weights("balanced", QUESTIONS, get_task(QUESTIONS).class_targets(answered))


def loss_of(task: TaskConfig, weights: list[float] | None, outputs: list[Any], labels: np.ndarray) -> float:
    """Loss of a fine-tuning with these class weights on a batch without padding."""
    stage = finetuning_stage(FinetuneConfig(learning_rate=1e-3), task)
    objective = Finetuning(class_weights=None if weights is None else np.array(weights, np.float32))
    mask = tf.ones(outputs[0].shape[:2] if outputs[0].shape.rank == 3 else [len(labels), 5], tf.int32)
    batch = {"labels": tf.constant(labels), "input_mask": mask}
    return float(objective.loss(stage, {}, {"logits": outputs}, {}, batch)["labels"])


def test_loss_of_tags_is_that_of_keras() -> None:
    random = np.random.default_rng(7)
    logits = tf.constant(random.normal(size=[2, 5, 3]), tf.float32)
    # A batch is narrower than the encoded labels.
    tags = np.array([[-1, 2, 0, -1, 1, -1, -1], [-1, 0, 0, 1, -1, -1, -1]], np.int32)
    weights, kept = [0.5, 3.0, 7.0], tags[:, :5] >= 0
    keras = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    arguments = tags[:, :5][kept], logits[kept]
    expected = float(keras(*arguments, sample_weight=np.array(weights)[arguments[0]]))
    assert loss_of(TAGS, weights, [logits], tags) == pytest.approx(expected, rel=1e-6)
    assert loss_of(TAGS, None, [logits], tags) == pytest.approx(float(keras(*arguments)), rel=1e-6)


def test_loss_of_labels_is_that_of_tensorflow() -> None:
    random = np.random.default_rng(8)
    logits = tf.constant(random.normal(size=[5, 4]), tf.float32)
    given, weights = random.integers(0, 2, [5, 4]).astype(np.int32), [0.5, 3.0, 7.0, 1.25]
    expected = tf.nn.weighted_cross_entropy_with_logits(tf.constant(given, tf.float32), logits, tf.constant(weights))
    assert loss_of(SEVERAL, weights, [logits], given) == pytest.approx(float(tf.reduce_mean(expected)), rel=1e-6)


def test_loss_of_questions_weights_windows() -> None:
    random = np.random.default_rng(9)
    start, end = (tf.constant(random.normal(size=[3, 5]), tf.float32) for _ in range(2))
    positions = np.array([[2, 4], [0, 0], [1, 1]], np.int32)
    logs = [log_softmax(logits.numpy().astype(np.float64), axis=1) for logits in (start, end)]
    losses = [-(logs[0][row, first] + logs[1][row, last]) / 2 for row, (first, last) in enumerate(positions)]
    expected = np.mean(np.array([0.5, 3.0, 0.5]) * losses)
    assert loss_of(QUESTIONS, [0.5, 3.0], [start, end], positions) == pytest.approx(expected, rel=1e-6)


def test_fit_of_labels_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(10)
    features = random.normal(size=[41, 3])
    given = (features @ random.normal(size=[3, 2]) + random.normal(size=[41, 2]) > 0.7).astype(np.int32)
    weights = np.where(given == 1, np.array([6.0, 0.25], np.float32), 1).astype(np.float32)
    fit = fit_linear("labels", features, given, 2, weights, strengths=(0.1,))
    for column in range(2):
        logistic = LogisticRegression(C=0.1, max_iter=300)
        logistic.fit(features, given[:, column], sample_weight=weights[:, column])
        np.testing.assert_allclose(fit.kernel[:, column], logistic.coef_[0], rtol=1e-5)
        assert fit.bias[column] == pytest.approx(logistic.intercept_[0], rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "weights", "other"),
    [
        ("token_classification", "B-low=5,I-low=3", "balanced"),
        ("multi_label", "balanced", "high=3"),
        ("span", "no_answer=3", "has_answer=3"),
    ],
)
def test_commands_resume_only_with_the_same_weights(
    kind: str, weights: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tiny_tasks.CASES[kind]
    model, train = tiny_finetuning.write_model(tmp_path / "model"), tmp_path / f"train{case.suffix}"
    case.write(train)
    command = ["finetune", f"--model={model}", f"--train-file={train}", f"--output={tmp_path / 'run'}"]
    command += ["--max-steps=2", "--max-length=23", "--kind=multi_label"][: 3 if kind == "multi_label" else 2]
    if kind == "multi_label":
        command.append("--label-separator=|")
    tf.config.run_functions_eagerly(True)
    try:
        assert main([*command, f"--class-weights={weights}"]) == 0, capsys.readouterr().err
    finally:
        tf.config.run_functions_eagerly(False)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["class_weights"] == weights
    assert main([*command, f"--class-weights={other}"]) == 2
    assert f"other options: class_weights='{weights}', received '{other}'" in capsys.readouterr().err


def test_weights_by_label() -> None:
    labels = np.array([0, 1, 2], np.int32)
    weights = class_weights('"middle, really=2.5",a=b=0.25', THREE, labels)
    assert weights is not None and weights.tolist() == [1.0, 2.5, 0.25]
    assert class_weights("none", THREE, labels) is None


@pytest.mark.parametrize(
    ("text", "task", "message"),
    [
        ("lo=2", THREE, "class_weights must name labels of the task, 'low', 'middle, really', 'a=b'; received 'lo'"),
        ("low=2,low=3", THREE, "must name each label once; received 'low'"),
        (
            "balanced",
            TaskConfig(kind="regression"),
            "class_weights needs a task with classes; regression has none; received balanced",
        ),
        ("low=2", TaskConfig(kind="embedding"), "needs a task with classes; embedding has none; received low=2"),
        (
            "low=2",
            TaskConfig(kind="span"),
            "class_weights must name labels of the task, 'has_answer', 'no_answer'; received 'low'",
        ),
        ("low=balanced", THREE, "must have numbers, as HEAD=balanced is for several heads; received 'low=balanced'"),
        ("PER=2", TAGS, "class_weights must name labels of the task, 'O', 'B-PER', 'I-PER'; received 'PER'"),
    ],
)
def test_weights_for_other_tasks_are_refused(text: str, task: TaskConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        class_weights(text, task, np.array([0, 1], np.int32))


@pytest.mark.parametrize("text", ["", "low", "low=", "low=x", "low=0", "low=-1", "low=nan", "low=inf", "=2"])
def test_malformed_weights_are_refused(text: str) -> None:
    message = "class_weights must be none, balanced or label=weight,… with positive numbers; received"
    with pytest.raises(UserError, match=message):
        FinetuneConfig(class_weights=text)


def test_weights_are_a_text() -> None:
    weights: Any = {"low": 2}
    with pytest.raises(UserError, match="class_weights must be a text such as 'spam=3,ham=1'; received {'low': 2}"):
        FinetuneConfig(class_weights=weights)


def run(folder: Path, weights: str) -> tuple[float, Path, TaskConfig, Examples]:
    """One step over all examples; its loss."""
    config = tiny_finetuning.CONFIG.replace(num_layers=1, hidden_dropout=0.0, attention_dropout=0.0)
    model = folder / "model"
    if not model.exists():
        tiny_finetuning.write_model(model, config)
    task = TaskConfig(kind="classification", labels=("low", "high"), dropout=0.0)
    examples = tiny_finetuning.examples(60, 0)
    assert examples.labels is not None
    # 5 of 23 and all the others: a mean over classes differs from one over examples.
    train = examples.select([*np.flatnonzero(examples.labels == 1)[:5], *np.flatnonzero(examples.labels == 0)[:18]])
    config = FinetuneConfig(
        **PUBLISHED_HEAD, epochs=1, batch_size=23, max_length=23, class_weights=weights, learning_rate=1e-3
    )
    data = TaskData(task=task, train=train, dev=examples, metrics=("accuracy",), main_metric="accuracy")
    finetune(model, data, folder / "run", config=config)
    first = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["split"] == "train" and first["step"] == 1
    return first["loss"], model, task, train


def test_loss_is_the_weighted_cross_entropy(tmp_path: Path) -> None:
    # Tracing would take longer than the one step.
    tf.config.run_functions_eagerly(True)
    try:
        loss, directory, task, train = run(tmp_path, "high=4,low=0.5")
    finally:
        tf.config.run_functions_eagerly(False)
    model = pb.from_pretrained(directory, task=task, seed=0)
    logits = model(model.tokenizer(train.texts, max_length=23))["logits"].numpy().astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    entropies = -logs[np.arange(23), train.labels]
    # Keras' mean: over examples, and not over weights. float32 sums of 23 numbers.
    assert loss == pytest.approx(np.mean(np.array([0.5, 4])[train.labels] * entropies), rel=1e-5)
    with pytest.raises(UserError, match="other options: class_weights='high=4,low=0.5', received 'balanced'"):
        run(tmp_path, "balanced")
