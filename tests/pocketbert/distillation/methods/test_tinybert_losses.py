"""TinyBERT's losses and targets, compared with the paper's equations in NumPy.

The teacher has 4 layers of width 30, the student 2 of width 20, both 5 heads.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tiny import BATCH_LENGTHS, BERT, batch

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.training.stage import Stage

# float32 sums of at most some thousand values of order 1 to 10, in another order than NumPy's: 2^-24 · √4000 ≈ 4e-6
# relative; the features themselves are given to both sides.
TOLERANCE = 2e-5

TEACHER = BERT.replace(num_layers=4)
STUDENT = BERT.replace(num_layers=2, hidden_size=20, embedding_size=20, head_size=4, intermediate_size=23)
COLORS = TaskConfig(kind="classification", name="colors", labels=("red", "green", "blue", "grey"))
SCORE = TaskConfig(kind="regression", name="score")


@dataclasses.dataclass
class Run:
    """One batch through teacher, student and method, and everything in NumPy for the oracle."""

    stage: Stage
    terms: dict[str, float]
    targets: dict[str, np.ndarray]
    teacher: dict[str, list[np.ndarray]]
    student: dict[str, list[np.ndarray]]
    adapters: dict[str, Any]


@pytest.fixture(scope="module")
def models() -> dict[str, pb.Model]:
    return {
        f"{side} {task.kind}": pb.from_preset(config, (task,), seed=seed)
        for task in (COLORS, SCORE)
        for seed, (side, config) in enumerate((("teacher", TEACHER), ("student", STUDENT)))
    }


def run(models: dict[str, pb.Model], stage_name: str, task: TaskConfig = COLORS, **options: Any) -> Run:
    chosen = TinyBERT(max_length=7, **options)
    tiny = DistillationSpec(teacher=TEACHER, student=STUDENT, task=task, teacher_task=task)
    stage = next(stage for stage in plan_stages(chosen, tiny) if stage.name == stage_name)
    adapters = dict(chosen.adapters(tiny))
    initialize_adapters(adapters, standard_deviation=0.3, seed=5)
    for name, adapter in adapters.items():
        adapter.bias.assign(np.linspace(-1, len(name) / 10, 30))
    labels = tf.constant([2, 0, 3]) if task.kind == "classification" else tf.constant([0.5, 3.25, -1.0])
    inputs = {**batch(TEACHER), "labels": labels}
    teacher = models[f"teacher {task.kind}"].features(inputs, stage.teacher_features) if stage.teacher_features else {}
    student = models[f"student {task.kind}"].features(inputs, stage.student_features, training=False)
    targets = TinyBERT().targets(stage, teacher, inputs)
    terms = TinyBERT().loss(stage, targets, student, adapters, inputs)
    for term in terms.values():
        assert term.dtype == tf.float32 and term.shape == ()
    return Run(
        stage,
        {name: float(term) for name, term in terms.items()},
        {name: target.numpy() for name, target in targets.items()},
        {name: [x.numpy() for x in values] for name, values in teacher.items()},
        {name: [x.numpy() for x in values] for name, values in student.items()},
        adapters,
    )


def mean_squared(teacher: np.ndarray, student: np.ndarray) -> float:
    """Over the real tokens of each row (`BATCH_LENGTHS`) and all features, in float64."""
    rows = [
        (np.float64(t[:n]) - np.float64(s[:n])).ravel() for t, s, n in zip(teacher, student, BATCH_LENGTHS, strict=True)
    ]
    return float(np.mean(np.concatenate(rows) ** 2))


def mean_squared_pairs(teacher: np.ndarray, student: np.ndarray) -> float:
    """Over heads and the pairs of real tokens of each row."""
    rows = [
        (np.float64(t[:, :n, :n]) - np.float64(s[:, :n, :n])).ravel()
        for t, s, n in zip(teacher, student, BATCH_LENGTHS, strict=True)
    ]
    return float(np.mean(np.concatenate(rows) ** 2))


def projected(adapter: Any, x: np.ndarray) -> np.ndarray:
    return x @ adapter.kernel.numpy() + adapter.bias.numpy()


@pytest.mark.parametrize("shared", [False, True])
def test_intermediate_losses_match_the_paper(models: dict[str, pb.Model], shared: bool) -> None:
    step = run(models, "intermediate", shared_projection=shared)
    names = ("shared_projection",) * 2 if shared else ("embedding_projection", "hidden_projection")
    assert list(step.adapters) == list(dict.fromkeys(reversed(names)))
    w_e, w_h = (step.adapters[name] for name in names)
    # g(1) = 2, g(2) = 4; the features stand in the order 0, g(1), g(2).
    (t0, t2, t4), (s0, s1, s2) = step.teacher["hidden_states"], step.student["hidden_states"]
    (ta2, ta4), (sa1, sa2) = step.teacher["attention_logits"], step.student["attention_logits"]
    expected = {
        "embedding": mean_squared(t0, projected(w_e, s0)),
        "hidden": mean_squared(t2, projected(w_h, s1)) + mean_squared(t4, projected(w_h, s2)),
        "attention": mean_squared_pairs(ta2, sa1) + mean_squared_pairs(ta4, sa2),
    }
    assert step.terms.keys() == step.stage.weights.keys() == expected.keys()
    for term, value in expected.items():
        assert step.terms[term] == pytest.approx(value, rel=TOLERANCE)


def test_targets_equal_the_teachers_features(models: dict[str, pb.Model]) -> None:
    step = run(models, "intermediate")
    assert set(step.targets) == {"hidden_states_0", "hidden_states_2", "hidden_states_4",
                                 "attention_logits_2", "attention_logits_4"}  # fmt: skip
    inputs = batch(TEACHER)
    every = models["teacher classification"].features(inputs, ["hidden_states", "attention_logits"])
    for layer in (0, 2, 4):
        np.testing.assert_array_equal(step.targets[f"hidden_states_{layer}"], every["hidden_states"][layer])
    for layer in (2, 4):
        np.testing.assert_array_equal(step.targets[f"attention_logits_{layer}"], every["attention_logits"][layer - 1])


@pytest.mark.parametrize("left_out", ["embedding", "attention", "hidden"])
def test_other_losses_do_not_change(models: dict[str, pb.Model], left_out: str) -> None:
    whole, rest = run(models, "intermediate"), run(models, "intermediate", without=(left_out,))
    assert rest.terms == {term: value for term, value in whole.terms.items() if term != left_out}
    missing = {"hidden": "hidden_projection", "embedding": "embedding_projection"}.get(left_out)
    assert rest.adapters.keys() == whole.adapters.keys() - {missing}


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(np.float64(x))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("temperature", "over_classes"), [(1.0, False), (2.5, False), (1.0, True)])
def test_prediction_loss_is_equation_10(models: dict[str, pb.Model], temperature: float, over_classes: bool) -> None:
    step = run(models, "prediction", temperature=temperature, mean_over_classes=over_classes)
    (teacher,), (student,) = step.teacher["logits"], step.student["logits"]
    entropies = -(softmax(teacher / temperature) * np.log(softmax(student / temperature))).sum(-1)
    expected = entropies.mean() / (4 if over_classes else 1)
    assert step.terms == {"prediction": pytest.approx(expected, rel=TOLERANCE)}
    np.testing.assert_array_equal(step.targets["logits"], teacher)


def test_without_prediction_loss_uses_labels(models: dict[str, pb.Model]) -> None:
    step = run(models, "prediction", without=("prediction",))
    probabilities = softmax(step.student["logits"][0])
    expected = -np.log(probabilities[[0, 1, 2], [2, 0, 3]]).mean()
    assert step.terms == {"labels": pytest.approx(expected, rel=TOLERANCE)} and step.targets == {}


def test_regression_learns_scores_or_labels(models: dict[str, pb.Model]) -> None:
    followed = run(models, "prediction", SCORE)
    (teacher,), (student,) = followed.teacher["logits"], followed.student["logits"]
    assert teacher.shape == (3,)
    assert followed.terms == {"prediction": pytest.approx(float(((student - teacher) ** 2).mean()), rel=TOLERANCE)}
    labelled = run(models, "prediction", SCORE, regression_target="labels")
    expected = float(((student - np.array([0.5, 3.25, -1.0])) ** 2).mean())
    assert labelled.terms == {"labels": pytest.approx(expected, rel=TOLERANCE)} and labelled.targets == {}


def test_equal_widths_keep_projections() -> None:
    equal = DistillationSpec(teacher=TEACHER, student=TEACHER.replace(num_layers=2), task=None)
    adapters = TinyBERT().adapters(equal)
    assert {name: tuple(layer.kernel.shape) for name, layer in adapters.items()} == {
        "hidden_projection": (30, 30),
        "embedding_projection": (30, 30),
    }
    narrow = dataclasses.replace(equal, student=STUDENT)
    (shared,) = TinyBERT(shared_projection=True).adapters(narrow).values()
    assert tuple(shared.kernel.shape) == (20, 30)


def test_only_student_and_projections_learn(models: dict[str, pb.Model]) -> None:
    tiny = DistillationSpec(teacher=TEACHER, student=STUDENT, task=None)
    options = TinyBERT(max_length=7)
    (stage,) = plan_stages(options, tiny)
    adapters = options.adapters(tiny)
    initialize_adapters(adapters, standard_deviation=0.3, seed=5)
    teacher, student = models["teacher classification"], models["student classification"]
    inputs = batch(TEACHER)
    with tf.GradientTape() as tape:
        targets = TinyBERT().targets(stage, teacher.features(inputs, stage.teacher_features), inputs)
        features = student.features(inputs, stage.student_features, training=True)
        loss = sum(TinyBERT().loss(stage, targets, features, adapters, inputs).values())
    weights = student.weights_by_path()
    encoder_weights = {
        name: weight for name, weight in weights.items() if name.startswith("encoder.") and "pooler" not in name
    }
    kernels = [adapter.kernel for adapter in adapters.values()]
    watched = [*encoder_weights.values(), *kernels, *teacher.trainable_variables]
    gradients = tape.gradient(loss, watched, unconnected_gradients="none")
    learning, frozen = (
        gradients[: len(encoder_weights) + len(kernels)],
        gradients[len(encoder_weights) + len(kernels) :],
    )
    assert all(gradient is not None for gradient in learning)
    assert all(gradient is None for gradient in frozen) and frozen
