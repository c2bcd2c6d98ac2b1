"""MobileBERT on tiny models: terms compared with the papers' equations, changed and frozen weights, copied weights.

Sizes: 3 rows of 9, 3 layers, 5 heads, feature maps of 30, 4 masked positions, 97 words.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import oracles.distillation as oracle
import pytest
import tensorflow as tf
import tiny
import tiny_mobilebert
from tiny_mobilebert import HEADS, STUDENT, TEACHER

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.training.stage import Stage
from pocketbert.training.step import make_optimizer

LAYERS = TEACHER.num_layers
# A loss is a mean of float32 terms of order 1 to 100, of two networks whose features agree with the oracle's inputs to
# the bit; what differs is the order of a few hundred additions.
TOLERANCE = 4e-5


def make_stages(**options: Any) -> dict[str, Stage]:
    fields = {"max_length": 23, "transfer_steps": 90, "distillation_steps": 30, "transfer_batch_size": 3}
    method = MobileBERT(**{**fields, "distillation_batch_size": 3, **options})
    setting = DistillationSpec(
        teacher=TEACHER, student=STUDENT, task=None, teacher_heads=tuple(head.kind for head in HEADS)
    )
    return {stage.name: stage for stage in plan_stages(method, setting)}


@pytest.fixture(scope="module")
def teacher() -> Model:
    return pb.from_preset(TEACHER, HEADS, seed=12)


@pytest.fixture(scope="module")
def student() -> Model:
    return pb.from_preset(STUDENT, HEADS, seed=4)


def terms(teacher: Model, student: Model, stage: Stage, batch: Any = None) -> dict[str, float]:
    distiller = Distiller(student, MobileBERT(), stage, teacher=teacher)
    losses = distiller.losses(batch or tiny_mobilebert.batch())
    return dict(zip(distiller.loss_names, losses.numpy().tolist(), strict=True))


# --- terms ---


def expected_terms(teacher: Model, student: Model) -> dict[str, float]:
    """Means over the layers of eq. 2, its decomposed form and eq. 3; the parts of eq. 4."""
    batch = tiny_mobilebert.batch()
    mask = batch["input_mask"].numpy()
    both = [model.features(batch, ["hidden_states", "attention_logits", "logits"]) for model in (teacher, student)]
    losses: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        losses.setdefault(name, []).append(value)

    for layer in range(1, LAYERS + 1):
        hidden = [features["hidden_states"][layer].numpy() for features in both]
        logits = [features["attention_logits"][layer - 1].numpy() for features in both]
        add("feature_map", oracle.feature_map_transfer(*hidden, mask))
        for name, value in oracle.feature_statistics_transfer(*hidden, mask).items():
            add(f"feature_{name}", value)
        add("attention", oracle.attention_transfer(*logits, mask))
    (teachers, _), (words, sides) = ([feature.numpy() for feature in features["logits"]] for features in both)
    labels, next_labels = batch["masked_lm_labels"].numpy(), batch["next_sentence_labels"].numpy()
    for row, position in zip(*np.nonzero(labels != -1), strict=True):
        add("masked_lm", -oracle.log_softmax(words[row, position])[labels[row, position]])
        add("distillation", oracle.cross_entropy(teachers[row, position], words[row, position]))
    for row, label in enumerate(next_labels):
        add("next_sentence", -oracle.log_softmax(sides[row])[label])
    assert len(losses["masked_lm"]) == 7
    return {name: oracle.mean(values) for name, values in losses.items()}


@pytest.mark.parametrize("feature_transfer", ["mse", "decomposed"])
def test_terms_and_sum_match_the_paper(teacher: Model, student: Model, feature_transfer: Any) -> None:
    expected = expected_terms(teacher, student)
    alpha = 0.3
    weights = {"masked_lm": alpha, "distillation": 1 - alpha, "next_sentence": 1.0, "attention": 1.0}
    if feature_transfer == "mse":
        weights |= {"feature_map": 100.0}
    else:
        weights |= {"feature_normalized": 100.0, "feature_mean": 5000.0, "feature_variance": 5.0}
    (stage,) = make_stages(strategy="auxiliary", alpha=alpha, feature_transfer=feature_transfer).values()
    losses = terms(teacher, student, stage)
    assert losses.pop("loss") == pytest.approx(sum(weights[name] * expected[name] for name in weights), rel=TOLERANCE)
    assert losses == pytest.approx({name: expected[name] for name in weights}, rel=TOLERANCE)


def test_progressive_stage_compares_one_layer(teacher: Model, student: Model) -> None:
    stages = make_stages()
    batch = tiny_mobilebert.batch()
    mask = batch["input_mask"].numpy()
    both = [model.features(batch, ["hidden_states"])["hidden_states"] for model in (teacher, student)]
    for layer in range(1, LAYERS + 1):
        losses = terms(teacher, student, stages[f"transfer_{layer:02}"])
        expected = oracle.feature_map_transfer(*(states[layer].numpy() for states in both), mask)
        assert losses["feature_map"] == pytest.approx(expected, rel=TOLERANCE)
        assert losses["loss"] == pytest.approx(100 * losses["feature_map"] + losses["attention"], rel=1e-6)


def test_mlm_targets_ignore_labels(teacher: Model, student: Model) -> None:
    stage = make_stages()["distillation"]
    batch = tiny_mobilebert.batch()
    expected = terms(teacher, student, stage, batch)
    # Only filling: a row's unmasked positions hold 0, and labels other than these.
    other = {**batch, "masked_lm_labels": (batch["masked_lm_labels"] + 5) % 97}
    losses = terms(teacher, student, stage, other)
    assert losses["distillation"] == expected["distillation"] and losses["next_sentence"] == expected["next_sentence"]
    assert losses["masked_lm"] != expected["masked_lm"]


class Counting:
    """A model that counts how often features are requested, and which."""

    def __init__(self, model: Model) -> None:
        self.model, self.requests = model, []

    def features(self, inputs: Any, request: Any, training: bool | None = None) -> Any:
        self.requests.append(dict(request))
        return self.model.features(inputs, request, training=training)


def test_auxiliary_transfer_runs_networks_once(teacher: Model, student: Model) -> None:
    (stage,) = make_stages(strategy="auxiliary").values()
    counting = Counting(teacher)
    Distiller(student, MobileBERT(), stage, teacher=counting).losses(tiny_mobilebert.batch())
    layers = (1, 2, 3)
    assert counting.requests == [{"hidden_states": layers, "attention_logits": layers, "logits": ()}]


# Micro-batches with other numbers of tokens are in test_distiller.py.
@pytest.mark.nightly
def test_micro_batches_sum_to_the_batch(teacher: Model) -> None:
    """Its rows have 4, 1 and 2 masked tokens and 7, 4 and 6 tokens, so that a mean of means would differ."""
    results = []
    for parts in (1, 3):
        student = pb.from_preset(STUDENT, HEADS, seed=4)
        (stage,) = make_stages(strategy="auxiliary", micro_batches=parts, clip_norm=0.0).values()
        distiller = Distiller(student, MobileBERT(), stage, teacher=teacher)
        distiller.compile(optimizer=make_optimizer(stage, stage.duration.count))
        losses = distiller.update(tiny_mobilebert.batch())
        moments = {n: v.numpy() for n, v in distiller.optimizer.named_state().items() if n.startswith("m/")}
        results.append(({name: float(value) for name, value in losses.items()}, moments))
    (losses, moments), (summed, summed_moments) = results
    assert summed == pytest.approx(losses, rel=TOLERANCE)
    for name, expected in moments.items():
        # Sums in another order: relative to the largest of the tensor.
        np.testing.assert_allclose(summed_moments[name], expected, atol=TOLERANCE * np.abs(expected).max() + 1e-8)


# --- what moves ---


def bits(model: Model) -> dict[str, bytes]:
    return {name: variable.numpy().tobytes() for name, variable in model.named_variables().items()}


def layers_that_moved(before: dict[str, bytes], model: Model) -> dict[int, bool]:
    """Layer, 0 for embedding and heads → whether all of its weights changed; what nothing changed in is not there."""
    moved: dict[int, list[bool]] = {}
    for name, content in bits(model).items():
        _, _, rest = name.partition(".encoder.layer.")
        moved.setdefault(int(rest.partition(".")[0]) + 1 if rest else 0, []).append(content != before[name])
    return {layer: all(changes) for layer, changes in moved.items() if any(changes)}


def train(teacher: Model, student: Model, stage: Stage, steps: int = 2) -> None:
    """Real steps of the stage's optimizer on one batch; the first one of a transfer stage has rates of 0."""
    distiller = Distiller(student, MobileBERT(), stage, teacher=teacher)
    distiller.compile(optimizer=make_optimizer(stage, stage.duration.count))
    batch = tiny_mobilebert.batch()
    # Without a graph: for a few steps it is not worth tracing.
    for _ in range(steps):
        distiller.update(batch)


# What moves in one layer's stage, and with it the layers below.
@pytest.mark.one_of_each("options0-transfer_02-moving0", "options1-transfer_02-moving1")
@pytest.mark.parametrize(
    ("options", "name", "moving"),
    [
        ({}, "transfer_02", {2}),
        ({"lower_layers": "reduced"}, "transfer_02", {1, 2}),
        ({"lower_layers": "reduced"}, "transfer_01", {1}),
        ({"strategy": "joint"}, "transfer", {1, 2, 3}),
        ({}, "distillation", {0, 1, 2, 3}),
    ],
)
def test_only_current_layers_change(teacher: Model, options: dict[str, Any], name: str, moving: set[int]) -> None:
    student = pb.from_preset(STUDENT, HEADS, seed=4)
    # A weight of -0.0 shows a step of 0, and decay shows on any weight.
    bias = student.named_variables()["mobilebert.encoder.layer.2.output.bottleneck.dense.bias"]
    bias.assign(-tf.zeros_like(bias))
    before = bits(student)
    train(teacher, student, make_stages(**options)[name])
    moved = layers_that_moved(before, student)
    assert set(moved) == moving
    # Of a Transformer layer all weights learn, but the keys' biases only by rounding: softmax does not see them.
    assert all(moved[layer] for layer in moving - {0}) or name == "distillation"


# The multipliers are those of test_mobilebert_replicas.py.
@pytest.mark.nightly
def test_lower_layers_use_a_tenth(teacher: Model) -> None:
    # Without trust ratio (norms are excluded from it), decay and momentum's history, LAMB's first step that counts is
    # rate × multiplier × m̂/√v̂, which is ±1 for one gradient: in step 0 the multiplier is 0, in step 1 it is not.
    student = pb.from_preset(STUDENT, HEADS, seed=4)
    stage = make_stages(lower_layers="reduced", bias_correction=True)["transfer_02"]
    weights = {name: variable.numpy() for name, variable in student.named_variables().items()}
    train(teacher, student, stage)
    # 30 steps a layer: b(1) = 1/3. The same batch twice with the same weights: m̂ = g and v̂ = g².
    for layer, multiplier in {1: 0.3 / 3, 2: 3.0 / 3}.items():
        name = f"mobilebert.encoder.layer.{layer - 1}.output.bottleneck.LayerNorm.bias"
        moved = np.abs(student.named_variables()[name].numpy() - weights[name])
        # epsilon of 1e-6 beside gradients of 1e-3 and more; weights of order 1 are rounded to 6e-8.
        np.testing.assert_allclose(moved, 1.5e-3 * multiplier, rtol=5e-3)


@pytest.mark.nightly
def test_training_reduces_the_losses(teacher: Model) -> None:
    student = pb.from_preset(STUDENT, HEADS, seed=4)
    MobileBERT().initialize(teacher, student)
    rates = {"transfer_learning_rate": 3e-3, "distillation_learning_rate": 3e-2}
    stages = make_stages(strategy="joint", bias_correction=True, **rates)
    # By how much a loss must fall: that of eq. 4 stays above the entropy of a teacher that was never trained.
    for name, factor in {"transfer": 0.9, "distillation": 0.97}.items():
        before = terms(teacher, student, stages[name])
        train(teacher, student, stages[name], steps=8)
        assert terms(teacher, student, stages[name])["loss"] < factor * before["loss"], name


def test_trained_student_ignores_padding(teacher: Model) -> None:
    """As long as what stands behind the last token is as good as nothing, a batch's width changes no answer."""
    student = pb.from_preset(STUDENT, HEADS, seed=4)
    distiller = Distiller(student, MobileBERT(), make_stages()["distillation"], teacher=teacher)
    distiller.compile(optimizer=tf_keras.optimizers.SGD(0.3))
    table = student.encoder.embeddings.word.table
    before = table.numpy()
    batch = tiny_mobilebert.batch()
    ids = batch["input_word_ids"].numpy()
    ids[1, 2] = STUDENT.pad_token_id
    for _ in range(2):
        distiller.update({**batch, "input_word_ids": tf.constant(ids)})
    assert not table[STUDENT.pad_token_id].numpy().any()
    assert np.abs(table.numpy() - before).max() > 1e-2
    # The first row's 7 tokens fill one batch and not the other.
    narrow, wide = (student(tiny.batch(STUDENT, length=length)) for length in (7, 9))
    for name in wide:
        expected = wide[name].numpy()
        outputs = narrow[name].numpy()
        if name == "prediction_logits":
            expected, outputs = expected[0, :7], outputs[0]
        # Softmax over 9 keys of which 2 count for nothing, and over 7: a few float32 roundings, through 3 layers.
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=2e-5 * max(1.0, np.abs(expected).max()))


# --- what is copied ---


def copied(student: Model, fresh: Model) -> set[str]:
    fresh_weights = fresh.weights_by_path()
    return {
        path
        for path, value in student.weights_by_path().items()
        if not np.array_equal(value.numpy(), fresh_weights[path])
    }


NORM = {"encoder.embeddings.norm.gamma", "encoder.embeddings.norm.beta"}
COPIED = {
    "encoder.embeddings.word.table",
    "encoder.embeddings.position.table",
    "encoder.embeddings.token_type.table",
    "encoder.embeddings.projection.kernel",
    "encoder.embeddings.projection.bias",
    "heads.masked_lm.transform.kernel",
    "heads.masked_lm.transform.bias",
    "heads.masked_lm.norm.gamma",
    "heads.masked_lm.norm.beta",
    "heads.masked_lm.bias",
    "heads.masked_lm.extra_table",
    "heads.next_sentence.output.kernel",
    "heads.next_sentence.output.bias",
}
POOLER = {"encoder.pooler.kernel", "encoder.pooler.bias"}


@pytest.fixture(scope="module")
def every_weight_its_own() -> Model:
    """A teacher in which not even biases and norms are as they are made."""
    model = pb.from_preset(TEACHER, HEADS, seed=12)
    random = np.random.default_rng(5)
    for variable in model.weights_by_path().values():
        variable.assign(random.normal(size=variable.shape))
    return model


@pytest.mark.one_of_each("changes0-options0-expected0", "changes6-options6-expected6")
@pytest.mark.parametrize(
    ("changes", "options", "expected"),
    [
        ({}, {}, COPIED),
        ({}, {"strategy": "joint"}, COPIED),
        ({}, {"copy_norms": True}, COPIED | NORM),
        # Table 9's student, without operational optimizations: the authors' names are then the same.
        ({"norm": "layer_norm", "activation": "gelu_tanh"}, {}, COPIED | NORM),
        ({"pooler": "tanh"}, {}, COPIED | POOLER),
        ({}, {"strategy": "auxiliary"}, set()),
        ({}, {"strategy": "none"}, set()),
        ({}, {"without": ("feature_map", "attention")}, set()),
    ],
)
def test_embedding_and_heads_are_copied(
    every_weight_its_own: Model, changes: dict[str, Any], options: dict[str, Any], expected: set[str]
) -> None:
    config = STUDENT.replace(**changes)
    student, fresh = (pb.from_preset(config, HEADS, seed=4) for _ in range(2))
    MobileBERT(**options).initialize(every_weight_its_own, student)
    assert copied(student, fresh) == expected
    unshared_weights = every_weight_its_own.weights_by_path()
    for path in expected:
        np.testing.assert_array_equal(student.weights_by_path()[path].numpy(), unshared_weights[path].numpy())


def test_cached_teacher_cannot_be_copied(student: Model) -> None:
    MobileBERT(strategy="none").initialize(None, student)
    with pytest.raises(UserError, match="received a teacher cache; give a live teacher"):
        MobileBERT().initialize(None, student)


def test_all_copied_shapes_are_compared() -> None:
    """A student whose configuration passes the check can take the weights, whatever else differs."""
    other = {
        "num_layers": 4,
        "num_attention_heads": 3,
        "head_size": 2,
        "intermediate_size": 7,
        "num_feedforward_networks": 2,
        "bottleneck": dataclasses.replace(tiny.MOBILEBERT.bottleneck, size=13),  # type: ignore[type-var]
        "activation": "gelu",
    }
    teacher = pb.from_preset(TEACHER, HEADS, seed=1)
    student = pb.from_preset(STUDENT.replace(**other), HEADS, seed=2)
    MobileBERT().initialize(teacher, student)
