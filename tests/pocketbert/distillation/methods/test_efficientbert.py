"""EfficientBERT's stages and loss against arithmetic from the paper.

The teacher has 4 layers of width 30, the student 2 of width 20 with expressions, both 5 heads.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tiny import BATCH_LENGTHS

import pocketbert as pb
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.presets import preset
from pocketbert.training.stage import Epochs, Steps

# float32 sums of at most some thousand values of order 1 to 10, in another order than NumPy's: 2^-24 · √4000 ≈ 4e-6
# relative; the features themselves are given to both sides.
TOLERANCE = 2e-5

TEACHER = tiny.BERT.replace(num_layers=4)
STUDENT = tiny.EFFICIENTBERT.replace(
    num_layers=2,
    hidden_size=20,
    head_size=4,
    feedforward=FeedForwardConfig(
        expressions=("tanh(linear2_2(gelu(linear2_2(x))))", "linear1_3(relu(mul(linear1_3(x),x)))")
    ),
)
COLORS = TaskConfig(kind="classification", name="colors", labels=("red", "green", "blue", "grey"))
SCORE = TaskConfig(kind="regression", name="score")
SPAN = TaskConfig(kind="span", name="squad")
LAYERS = {"embedding": 1.0, "attention": 1.0, "hidden": 1.0}


def spec(task: TaskConfig | None = COLORS, **changes: Any) -> DistillationSpec:
    fields: dict[str, Any] = {"teacher": TEACHER, "student": STUDENT, "task": task, "teacher_task": task}
    return DistillationSpec(**{**fields, **changes})


def of_paper(task: TaskConfig | None, **options: Any) -> Any:
    """The stage for the paper's models."""
    models: dict[str, EncoderConfig] = {
        "teacher": preset("bert_base_uncased").config,
        "student": preset("efficientbert").config,
    }
    (stage,) = plan_stages(EfficientBERT(**options), spec(task, **models))
    return stage


@pytest.mark.parametrize(
    ("task", "epochs", "rate"),
    [
        (dataclasses.replace(COLORS, name="mnli"), 10, 5e-5),
        (dataclasses.replace(COLORS, name="cola"), 50, 5e-5),
        (SCORE, 10, 5e-5),
        (SPAN, 10, 1e-4),
    ],
)
def test_finetuning_follows_section_4_3(task: TaskConfig, epochs: int, rate: float) -> None:
    stage = of_paper(task)
    assert (stage.name, stage.data, stage.keep, stage.max_length) == ("finetuning", "task", "best", 128)
    assert (stage.duration, stage.batch_size) == (Epochs(epochs), 32)
    assert stage.weights == {**LAYERS, "prediction": 1.0}
    optimizer = stage.optimizer
    assert (optimizer.learning_rate, optimizer.warmup_ratio, optimizer.schedule) == (rate, 0.1, "linear")
    assert (optimizer.weight_decay, optimizer.beta_1, optimizer.beta_2) == (0.01, 0.9, 0.999)


def test_pretraining_follows_section_4_3() -> None:
    stage = of_paper(None)
    assert (stage.name, stage.data, stage.keep, stage.max_length) == ("pretraining", "text", "last", 128)
    assert (stage.duration, stage.batch_size, stage.weights) == (Epochs(10), 256, LAYERS)
    assert (stage.optimizer.learning_rate, stage.optimizer.warmup_ratio) == (1e-4, 0.1)
    assert (stage.masked_text, stage.text_segments) == (False, 2)
    assert stage.teacher_features["attention_logits"] == (2, 4, 6, 8, 10, 12)
    assert stage.teacher_features["hidden_states"] == (0, 2, 4, 6, 8, 10, 12)
    assert stage.student_features["hidden_states"] == (0, 1, 2, 3, 4, 5, 6)


def test_options_change_the_stage() -> None:
    stage = of_paper(COLORS, steps=7, batch_size=16, micro_batches=4, learning_rate=4e-4, prediction_weight=0.5)
    assert (stage.duration, stage.batch_size, stage.micro_batches) == (Steps(7), 16, 4)
    assert (stage.optimizer.learning_rate, stage.weights["prediction"]) == (4e-4, 0.5)


def means(teacher: np.ndarray, student: np.ndarray) -> float:
    """The mean squared difference [B, S, H] over the real tokens of each row and all features, in float64."""
    rows = [
        np.square(np.float64(t[:n]) - s[:n]).ravel() for t, s, n in zip(teacher, student, BATCH_LENGTHS, strict=True)
    ]
    return float(np.mean(np.concatenate(rows)))


def pair_means(teacher: np.ndarray, student: np.ndarray) -> float:
    """The mean squared difference [B, N, S, S] over heads and pairs of real tokens."""
    rows = [
        np.square(np.float64(t[:, :n, :n]) - s[:, :n, :n]).ravel()
        for t, s, n in zip(teacher, student, BATCH_LENGTHS, strict=True)
    ]
    return float(np.mean(np.concatenate(rows)))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def cross_entropy(teacher: np.ndarray, student: np.ndarray, temperature: float = 1.0) -> float:
    """Eq. 3, the mean over rows."""
    targets = np.exp(log_softmax(teacher / temperature))
    return float(-(targets * log_softmax(student / temperature)).sum(-1).mean())


@dataclasses.dataclass
class Run:
    """A batch through teacher, student and method, and everything in NumPy for the arithmetic."""

    terms: dict[str, float]
    total: float
    teacher: dict[str, list[np.ndarray]]
    student: dict[str, list[np.ndarray]]
    adapters: dict[str, tuple[np.ndarray, np.ndarray]]


@functools.cache
def networks(heads: tuple[TaskConfig, ...]) -> tuple[pb.Model, ...]:
    """Teacher and student, which nothing changes."""
    return tuple(pb.from_preset(config, heads, seed=seed) for seed, config in enumerate((TEACHER, STUDENT)))


def run(task: TaskConfig | None, **options: Any) -> Run:
    method = EfficientBERT(max_length=23, **options)
    (stage,) = plan_stages(method, spec(task))
    stage = dataclasses.replace(stage, student_dropout=False)
    heads = () if task is None else (task,)
    teacher, student = networks(heads)
    adapters = dict(method.adapters(spec(task)))
    initialize_adapters(adapters, standard_deviation=0.3, seed=5)
    for name, adapter in adapters.items():
        adapter.bias.assign(np.linspace(-1, len(name) / 10, 30))
    batch = dict(tiny.batch(TEACHER, length=9))
    if "labels" in stage.weights:
        batch["labels"] = tf.constant([0.5, 3.25, -1.0])
    learned = student.features(batch, stage.student_features)
    features = teacher.features(batch, {**stage.teacher_features, **({"logits": ()} if task else {})})
    distiller = Distiller(student, method, stage, teacher=teacher, adapters=adapters)
    losses = dict(zip(distiller.loss_names, distiller.losses(batch).numpy().tolist(), strict=True))
    return Run(
        {name: value for name, value in losses.items() if name != "loss"},
        losses["loss"],
        {name: [x.numpy() for x in values] for name, values in features.items()},
        {name: [x.numpy() for x in values] for name, values in learned.items()},
        {name: (adapter.kernel.numpy(), adapter.bias.numpy()) for name, adapter in adapters.items()},
    )


def layer_terms(step: Run, shared: bool) -> dict[str, float]:
    """Eq. 1 and 2, summed over layers: g(1) = 2, g(2) = 4."""
    names = ("shared",) * 2 if shared else ("embedding", "hidden")
    w_e, w_h = (step.adapters[f"{name}_projection"] for name in names)
    (t0, t2, t4), (s0, s1, s2) = step.teacher["hidden_states"], step.student["hidden_states"]
    (ta2, ta4), (sa1, sa2) = step.teacher["attention_logits"], step.student["attention_logits"]
    return {
        "embedding": means(t0, s0 @ w_e[0] + w_e[1]),
        "hidden": means(t2, s1 @ w_h[0] + w_h[1]) + means(t4, s2 @ w_h[0] + w_h[1]),
        "attention": pair_means(ta2, sa1) + pair_means(ta4, sa2),
    }


def assert_equal(step: Run, expected: dict[str, float], weight: float = 1.0) -> None:
    assert step.terms.keys() == expected.keys()
    for term, value in expected.items():
        assert step.terms[term] == pytest.approx(value, rel=TOLERANCE), term
    total = sum(value * (1.0 if term in LAYERS else weight) for term, value in expected.items())
    assert step.total == pytest.approx(total, rel=TOLERANCE)


def test_pretraining_loss_is_equation_4() -> None:
    step = run(None)
    assert {name: kernel.shape for name, (kernel, _) in step.adapters.items()} == {
        "hidden_projection": (20, 30),
        "embedding_projection": (20, 30),
    }
    assert_equal(step, layer_terms(step, shared=False))


def test_finetuning_adds_weighted_prediction() -> None:
    step = run(COLORS, prediction_weight=0.7, temperature=1.3)
    prediction = cross_entropy(step.teacher["logits"][0], step.student["logits"][0], 1.3)
    assert_equal(step, {**layer_terms(step, shared=False), "prediction": prediction}, 0.7)


def test_authors_code_shares_projection() -> None:
    step = run(COLORS, preset="authors-code")
    assert list(step.adapters) == ["shared_projection"]
    # The code's mean is over examples and classes.
    prediction = cross_entropy(step.teacher["logits"][0], step.student["logits"][0]) / 4
    assert_equal(step, {**layer_terms(step, shared=True), "prediction": prediction})


@pytest.mark.one_of_each("authors-code-labels")
@pytest.mark.parametrize(("chosen", "term"), [("paper", "prediction"), ("authors-code", "labels")])
def test_regression_learns_scores_or_labels(chosen: str, term: str) -> None:
    step = run(SCORE, preset=chosen)
    target = step.teacher["logits"][0] if term == "prediction" else np.array([0.5, 3.25, -1.0])
    error = float(np.mean(np.square(np.float64(step.student["logits"][0]) - target)))
    assert_equal(step, {**layer_terms(step, shared=term == "labels"), term: error})


def test_span_prediction_excludes_padding() -> None:
    step = run(SPAN)
    expected = [
        cross_entropy(t[row : row + 1, :n], s[row : row + 1, :n])
        for t, s in zip(step.teacher["logits"], step.student["logits"], strict=True)
        for row, n in enumerate(BATCH_LENGTHS)
    ]
    assert step.terms["prediction"] == pytest.approx(math.fsum(expected) / len(expected), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prediction_weight": 0.0}, "prediction_weight must be positive; received 0.0"),
        ({"temperature": 0.0}, "temperature must be positive; received 0.0"),
        ({"warmup_ratio": 1.0}, "warmup_ratio must be below 1; received 1.0"),
        ({"text_segments": 3}, "text_segments must be 1 or 2; received 3"),
        ({"steps": 5, "epochs": 2}, "give steps or epochs; received steps=5 and epochs=2"),
        ({"preset": "code"}, "preset must be one of paper, authors-code; received 'code'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EfficientBERT(**options)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({}, {"student": STUDENT.replace(num_attention_heads=4, head_size=5)}, "has 5 heads, the student 4"),
        ({}, {"teacher": TEACHER.replace(num_layers=1)}, "received 2 for a teacher with 1"),
        ({"mapping": "2,5"}, {}, "teacher layers must be 1 to 4; received 5"),
        ({"masked_text": True}, {}, "masked_text is for plain text; received it with a task"),
        ({"text_segments": 2}, {"task": None, "student": STUDENT.replace(type_vocab_size=1)}, "needs two token types"),
    ],
)
def test_unfit_models_are_refused(options: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        plan_stages(EfficientBERT(max_length=23, **options), spec(**changes))
    assert "\n" not in str(error.value)


def test_summary_names_missing_pretraining() -> None:
    mapped, advice = EfficientBERT().summary(spec(start="random"))
    assert mapped == "efficientbert: layers 1 to 2 learn from the teacher's layers 2, 4"
    assert "distil on plain text first, or raise learning_rate" in advice
    assert EfficientBERT().summary(spec(start="directory")) == [mapped]
    assert EfficientBERT().summary(spec(None, start="random")) == [mapped]
