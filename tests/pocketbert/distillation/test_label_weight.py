"""The labels' own weight beside the teacher's predictions, and several labels per text as predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
from scipy.special import expit, log_expit, log_softmax, softmax

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.distillation.method import DistillationSpec, Method, plan_stages, validated_stages
from pocketbert.distillation.methods import get_method
from pocketbert.errors import UserError

CLASSES = TaskConfig(kind="classification", labels=("a", "b", "c"))
SEVERAL = TaskConfig(kind="multi_label", labels=("a", "b", "c"))
RANDOM = np.random.default_rng(4)
TEACHER, STUDENT = RANDOM.normal(size=[2, 5, 3]).astype(np.float32)
GOLD = np.array([2, 0, 1, 1, 2], np.int32)
METHODS = {
    "tinybert": {"max_length": 23, "temperature": 2.0},
    "hsk": {"max_length": 23, "separator_id": 3},
    "minilmv2": {"max_length": 23, "relation_heads": 5},
    "efficientbert": {"max_length": 23, "temperature": 2.0},
}


def spec(task: TaskConfig = CLASSES) -> DistillationSpec:
    student = tiny_distillation.STUDENT
    return DistillationSpec(
        teacher=tiny_distillation.TEACHER, student=student, task=task, teacher_task=task, start="directory"
    )


def terms(method: Method, task: TaskConfig, gold: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    """Weights and losses of predictions and labels in the stage with the head."""
    stage = plan_stages(method, spec(task))[-1]
    answers = {term: weight for term, weight in stage.weights.items() if term in ("prediction", "labels")}
    alone = replace(
        stage,
        weights=answers,
        student_features={"logits": ()},
        teacher_features={"logits": ()} if "prediction" in answers else {},
    )
    targets = method.targets(alone, {"logits": [tf.constant(TEACHER)]}, {}) if "prediction" in answers else {}
    batch = {"input_mask": tf.ones([5, 4], tf.int32), "labels": tf.constant(gold)}
    losses = method.loss(alone, targets, {"logits": [tf.constant(STUDENT)]}, {}, batch)
    return answers, {term: float(loss) for term, loss in losses.items()}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_weighted_sum_of_predictions_and_labels(name: str, weight: float) -> None:
    temperature = METHODS[name].get("temperature", 1.0)
    weights, losses = terms(get_method(name)(label_weight=weight, **METHODS[name]), CLASSES, GOLD)
    predicted = -(softmax(TEACHER / temperature, axis=1) * log_softmax(STUDENT / temperature, axis=1)).sum(1).mean()
    labels = -log_softmax(STUDENT, axis=1)[np.arange(5), GOLD].mean()
    total = sum(weights[term] * losses[term] for term in weights)
    assert total == pytest.approx((1 - weight) * predicted + weight * labels, rel=1e-5)


def test_default_is_that_of_the_paper() -> None:
    for name, expected in {"tinybert": "prediction", "hsk": "prediction", "minilmv2": "labels"}.items():
        assert dict(plan_stages(get_method(name)(**METHODS[name]), spec())[-1].weights) == {expected: 1.0}


@pytest.mark.parametrize("name", METHODS)
def test_several_labels_are_decisions_between_two(name: str) -> None:
    temperature = METHODS[name].get("temperature", 1.0)
    gold = RANDOM.integers(0, 2, [5, 3]).astype(np.int32)
    weights, losses = terms(get_method(name)(label_weight=0.5, **METHODS[name]), SEVERAL, gold)
    target, logits = expit(TEACHER / temperature), STUDENT / temperature
    predicted = -(target * log_expit(logits) + (1 - target) * log_expit(-logits)).mean()
    labels = -np.where(gold == 1, log_expit(STUDENT), log_expit(-STUDENT)).mean()
    assert losses == pytest.approx({"prediction": predicted, "labels": labels}, rel=1e-5)
    assert weights == {"prediction": 0.5, "labels": 0.5}


def test_weights_without_meaning_are_refused() -> None:
    tinybert = get_method("tinybert")
    for method, message in [
        (tinybert(label_weight=1.5), "label_weight must be 0 to 1; received 1.5"),
        (
            get_method("embedding")(label_weight=0.5),
            "label_weight needs a stage that learns predictions; embedding has",
        ),
    ]:
        problems = validated_stages(method, spec())[1]
        assert any(message in problem for problem in problems), problems


# The loss is in test_several_labels_are_decisions_between_two.
@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_several_labels_are_distilled(tmp_path: Path) -> None:
    bare = pb.from_pretrained(tiny_finetuning.write_model(tmp_path / "bare"))
    teacher = pb.from_preset(
        tiny_distillation.TEACHER.replace(initializer_range=0.3), (SEVERAL,), bare.tokenizer, seed=2
    )
    # Each label is as frequent as its absence.
    texts = tiny_finetuning.examples(200, seed=3).texts
    logits = teacher(teacher.tokenizer(texts, max_length=23))["logits"].numpy()
    teacher.heads["multi_label"].output_projection.bias.assign_sub(np.median(logits, axis=0))
    teacher.save_pretrained(tmp_path / "teacher")
    data: dict[str, Any] = {}
    for name, count, seed in (("train", 90, 0), ("dev", 37, 1)):
        plain = tiny_finetuning.examples(count, seed)
        logits = teacher(teacher.tokenizer(plain.texts, max_length=23))["logits"].numpy()
        data[name] = Examples(plain.texts, None, (logits > 0).astype(np.int32), plain.ids, plain.source)
    method = get_method("tinybert")(
        max_length=23, without=("embedding", "transformer"), prediction_epochs=2, prediction_learning_rate=1e-5
    )
    result = pb.distill(
        pb.TeacherLayers((1, 2)),
        pb.TaskData(task=SEVERAL, **data),
        tmp_path / "run",
        teacher=tmp_path / "teacher",
        method=method,
    )
    assert result.teacher_metrics is not None and result.teacher_metrics["micro_f1"] == pytest.approx(1.0)
    baseline = result.baseline["metrics"]["micro_f1"]
    assert result.metrics["micro_f1"] > baseline + 0.05


def test_embeddings_have_a_method_of_their_own() -> None:
    kinds = "classification, multi_label, regression, span, token_classification, several"
    with pytest.raises(UserError, match=f"hsk supports {kinds}; received embedding"):
        plan_stages(get_method("hsk")(), spec(TaskConfig(kind="embedding")))
