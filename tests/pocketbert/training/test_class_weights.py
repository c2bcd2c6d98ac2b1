"""Class weights, compared with scikit-learn and a weighted cross-entropy in NumPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
from sklearn.utils.class_weight import compute_class_weight

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.training.class_weights import class_weights
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD

THREE = TaskConfig(kind="classification", labels=("low", "middle, really", "a=b"))


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
        ("balanced", TaskConfig(kind="regression"), "needs a classification task; received balanced for regression"),
        ("low=2", TaskConfig(kind="span"), "class_weights needs a classification task; received low=2 for span"),
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
