"""One training step of a method: results, changed variables, unchanged variables."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation
import toy_method

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import DistillationSpec
from pocketbert.errors import UserError
from pocketbert.training.distribution import precision_policy
from pocketbert.training.stage import OptimizerConfig, Stage
from pocketbert.training.step import make_optimizer

TEACHER, STUDENT, TASK = tiny_distillation.TEACHER, tiny_distillation.STUDENT, tiny_distillation.TASK
SETTING = DistillationSpec(teacher=TEACHER, student=STUDENT, task=TASK)
METHOD = toy_method.toy()


@pytest.fixture(scope="module")
def teacher() -> pb.Model:
    return pb.from_preset(TEACHER, task=(TASK,), seed=12)


def batch(rows: int = 3, length: int = 7, seed: int = 3) -> dict[str, tf.Tensor]:
    """`rows` rows of 2 to `length` tokens, with labels."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, length, rows)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    ids = random.integers(5, STUDENT.vocab_size, [rows, length]).astype(np.int32) * mask
    return {
        "input_word_ids": tf.constant(ids),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.zeros([rows, length], tf.int32),
        "labels": tf.constant(random.integers(0, 2, rows).astype(np.int32)),
    }


SIGNATURE = {name: tf.TensorSpec([None] * value.shape.rank, tf.int32) for name, value in batch().items()}


def both_terms(**changes: Any) -> Stage:
    """Hidden states and labels in one stage."""
    fields = {
        "student_features": {"hidden_states": (1,), "logits": ()},
        "weights": {"hidden": 2.0, "labels": 0.5},
        "student_dropout": False,
    }
    return toy_method.hidden_stage(SETTING, **{**fields, **changes})


def make(stage: Stage, teacher: pb.Model | None, steps: int = 20) -> Distiller:
    adapters = METHOD.adapters(SETTING)
    initialize_adapters(adapters, 0.2, seed=1)
    distiller = Distiller(
        pb.from_preset(STUDENT, task=(TASK,), seed=4), METHOD, stage, teacher=teacher, adapters=adapters
    )
    distiller.compile(optimizer=make_optimizer(stage, steps))
    return distiller


def values(distiller: Distiller) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in distiller.named_variables().items()}


def test_fit_trains_only_the_student(teacher: pb.Model) -> None:
    before = {name: variable.numpy() for name, variable in teacher.named_variables().items()}
    distiller = make(both_terms(), teacher)
    start = values(distiller)
    data = tf.data.Dataset.from_tensors(batch()).repeat(20)
    history = distiller.fit(data, epochs=2, verbose=0).history
    assert list(history) == ["loss", "hidden", "labels"]
    assert history["hidden"][1] < 0.9 * history["hidden"][0] and history["labels"][1] < history["labels"][0]
    assert np.allclose(
        history["loss"], 2.0 * np.array(history["hidden"]) + 0.5 * np.array(history["labels"]), rtol=1e-6
    )
    end = values(distiller)
    # Rows of the tables that no token reads have no gradient, and decay; everything else must move.
    assert not [name for name in end if np.array_equal(end[name], start[name])]
    assert {"adapters.widening.kernel", "adapters.widening.bias"} < set(end)
    assert all(np.array_equal(before[name], variable.numpy()) for name, variable in teacher.named_variables().items())
    assert not {id(v) for v in distiller.variables} & {id(v) for v in teacher.variables}


def batches_of(*sizes: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(
        lambda: [batch(rows, seed=rows) for rows in sizes], output_signature=SIGNATURE
    )


@pytest.mark.usefixtures("eager")
def test_fit_and_evaluate_report_means(teacher: pb.Model) -> None:
    distiller = make(both_terms(), teacher)
    distiller.compile(optimizer=tf_keras.optimizers.SGD(0.0))
    losses = [distiller.losses(batch(rows, seed=rows)) for rows in (8, 7, 2)]
    expected = np.average(losses, axis=0, weights=(8, 7, 2))
    history = distiller.fit(batches_of(8, 7, 2), epochs=2, verbose=0).history
    for epoch in range(2):
        np.testing.assert_allclose([history[name][epoch] for name in ("loss", "hidden", "labels")], expected, rtol=1e-5)
    np.testing.assert_allclose(distiller.evaluate(batches_of(8, 7, 2), verbose=0), expected, rtol=1e-5)


@pytest.mark.usefixtures("eager")
def test_fit_accepts_any_mask_type(teacher: pb.Model) -> None:
    distiller = make(both_terms(), teacher)
    distiller.compile(optimizer=tf_keras.optimizers.SGD(0.0))
    data = batch()
    inputs = {name: value for name, value in data.items() if name != "labels"}
    inputs["input_mask"] = tf.cast(inputs["input_mask"], tf.bool)
    expected = distiller.losses(data).numpy()
    for element in (
        (inputs, data["labels"]),
        (inputs, {"labels": data["labels"]}),
        {**inputs, "labels": data["labels"]},
    ):
        history = distiller.fit(tf.data.Dataset.from_tensors(element), verbose=0).history
        np.testing.assert_allclose([history[name][0] for name in distiller.loss_names], expected, rtol=1e-5)
    weighted = (inputs, data["labels"], tf.ones([3]))
    with pytest.raises(UserError, match="^training takes mappings with input_word_ids, .*; received a tuple of 3$"):
        distiller.fit(tf.data.Dataset.from_tensors(weighted), verbose=0)


@pytest.mark.usefixtures("eager")
def test_frozen_layers_keep_their_weights(teacher: pb.Model) -> None:
    distiller = make(both_terms(), teacher)
    distiller.model.encoder.embeddings.trainable = False
    distiller.adapters["widening"].trainable = False
    distiller.compile(optimizer=make_optimizer(both_terms(), 20))
    before = values(distiller)
    distiller.fit(batches_of(3), verbose=0)
    unmoved = {name for name, value in values(distiller).items() if np.array_equal(value, before[name])}
    assert unmoved == {name for name in before if "embeddings" in name or name.startswith("adapters")}


def test_distiller_refuses_saving(teacher: pb.Model, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="^a training model cannot be saved or copied; save its model with save_p"):
        make(both_terms(), teacher).save(tmp_path / "distiller.keras")
    assert not list(tmp_path.iterdir())


def test_terms_match_the_features(teacher: pb.Model) -> None:
    distiller, data = make(both_terms(), teacher), batch()
    inputs = {name: value for name, value in data.items() if name != "labels"}
    teacher_states = teacher.features(inputs, {"hidden_states": (2,)})["hidden_states"][0].numpy()
    student_states = distiller.model.features(inputs, {"hidden_states": (1,)})["hidden_states"][0].numpy()
    weights = values(distiller)
    student_states = student_states @ weights["adapters.widening.kernel"] + weights["adapters.widening.bias"]
    real = data["input_mask"].numpy() == 1
    hidden = np.mean((student_states[real] - teacher_states[real]) ** 2)
    logits = distiller.model(inputs)["logits"].numpy().astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = -np.mean(logs[np.arange(3), data["labels"].numpy()])
    # Sums of 3*7*30 float32 products of order 1: within 1e-5.
    assert np.allclose(distiller.losses(data), [2.0 * hidden + 0.5 * labels, hidden, labels], rtol=1e-5)


def test_only_label_terms_receive_labels(teacher: pb.Model) -> None:
    class Liar(toy_method.ToyMethod):
        def loss(self, stage: Stage, *arguments: Any) -> dict[str, tf.Tensor]:
            terms = super().loss(dataclasses.replace(stage, weights={"labels": 1.0}), *arguments)
            return {"secret": terms["labels"]}

    stage = toy_method.label_stage()
    student = pb.from_preset(STUDENT, task=(TASK,), seed=4)
    data = batch()
    unlabelled = {name: value for name, value in data.items() if name != "labels"}
    assert np.isfinite(Distiller(student, METHOD, stage).losses(data)).all()
    with pytest.raises(UserError, match="stage labels learns from labels; its examples have none; give labelled ones"):
        Distiller(student, METHOD, stage).losses(unlabelled)
    with pytest.raises(KeyError, match="labels"):
        Distiller(student, Liar(), dataclasses.replace(stage, weights={"secret": 1.0})).losses(data)


def test_micro_batches_change_nothing(teacher: pb.Model) -> None:
    # Four parts of 2 rows; 2, 2, 2 and 1; two of 1.
    batches = [batch(rows, seed=rows) for rows in (8, 7, 2)]
    start = values(make(both_terms(), teacher))
    results = []
    for micro_batches in (1, 4):
        distiller = make(both_terms(micro_batches=micro_batches, batch_size=8), teacher)
        # Without clipping and moments, so that the change of a weight is its gradients'.
        distiller.compile(optimizer=tf_keras.optimizers.SGD(0.05))
        # One graph takes batches that have parts of several sizes, or fewer parts; without parts it needs none.
        step = distiller.update if micro_batches == 1 else tf.function(distiller.update, input_signature=[SIGNATURE])
        losses = [[float(value) for value in step(element).values()] for element in batches]
        results.append((losses, values(distiller)))
    (losses, weights), (other_losses, others) = results
    assert np.allclose(losses, other_losses, rtol=1e-4)
    for name in weights:
        # Each gradient is summed in another order, and the later steps start from the earlier ones' rounding.
        change = np.abs(weights[name] - start[name]).max()
        assert np.abs(weights[name] - others[name]).max() <= 1e-4 * max(change, 1e-2), name


def test_unused_weights_do_not_decay(teacher: pb.Model) -> None:
    stage = toy_method.hidden_stage(SETTING, micro_batches=2)
    distiller = make(stage, teacher)
    before = values(distiller)
    distiller.update(batch(4))
    after = values(distiller)
    unmoved = {name for name in after if np.array_equal(before[name], after[name])}
    # The kernels would decay; biases do not.
    assert unmoved == {
        f"{layer}.{part}" for layer in ("classifier", "bert.pooler.dense") for part in ("weight", "bias")
    }


def test_only_trainable_weights_change(teacher: pb.Model) -> None:
    def multiplier(name: str, step: tf.Tensor) -> tf.Tensor | float:
        return tf.where(step < 1, 0.0, 1.0) if name.startswith("adapters.") else 1.0

    stage = both_terms(trainable=lambda name: "embeddings" not in name, learning_rate_multiplier=multiplier)
    distiller = make(stage, teacher)
    distiller.compile(optimizer=make_optimizer(stage, 20, first_step=5))
    distiller.optimizer.iterations.assign(5)
    snapshots = [values(distiller)]
    for _ in range(2):
        distiller.update(batch())
        snapshots.append(values(distiller))
    moved = [
        {name for name in after if not np.array_equal(before[name], after[name])}
        for before, after in zip(snapshots, snapshots[1:], strict=False)
    ]
    assert not any("embeddings" in name for names in moved for name in names)
    adapters = {"adapters.widening.kernel", "adapters.widening.bias"}
    assert not adapters & moved[0] and adapters < moved[1]


def test_schedule_counts_stage_steps() -> None:
    config = OptimizerConfig(learning_rate=0.5, warmup_ratio=0.2)
    stage = dataclasses.replace(toy_method.label_stage(), optimizer=config)
    fresh, carried = make_optimizer(stage, 10), make_optimizer(stage, 10, first_step=7)
    variable = tf.Variable([1.0])
    for optimizer, start in ((fresh, 0), (carried, 7)):
        optimizer.bind({"weight": variable})
        optimizer.build([variable])
        rates = []
        for step in (0, 1, 2, 6, 10):
            optimizer.iterations.assign(start + step)
            rates.append(float(optimizer._compute_current_learning_rate() or optimizer.learning_rate))
        # Up to 0.5 at step 2, down to 0 at step 10.
        assert rates == pytest.approx([0.0, 0.25, 0.5, 0.25, 0.0])


def test_cached_targets_replace_the_teacher(teacher: pb.Model) -> None:
    data, stage = batch(), both_terms()
    inputs = {name: value for name, value in data.items() if name != "labels"}
    targets = METHOD.targets(stage, teacher.features(inputs, stage.teacher_features), data)
    live, stored = make(stage, teacher), make(stage, None)
    live.update(data)
    stored.update((data, targets))
    assert all(np.array_equal(value, values(stored)[name]) for name, value in values(live).items())
    with pytest.raises(ValueError, match="stage hidden reads hidden_states from a teacher; received neither"):
        stored.update(data)


def test_stage_controls_student_dropout(teacher: pb.Model) -> None:
    for active in (False, True):
        distiller = make(both_terms(student_dropout=active), teacher)
        first, second = (distiller.losses(batch(), training=True).numpy() for _ in range(2))
        assert np.array_equal(first, second) != active


def test_bfloat16_keeps_float32_weights_and_losses() -> None:
    with precision_policy("bfloat16"):
        distiller = make(both_terms(), pb.from_preset(TEACHER, task=(TASK,), seed=12))
        losses = [distiller.update(batch()) for _ in range(2)]
    assert all(
        value.dtype == tf.float32 and np.isfinite(value) for step_losses in losses for value in step_losses.values()
    )
    assert all(variable.dtype == tf.float32 for variable in distiller.named_variables().values())
    exact = make(both_terms(), pb.from_preset(TEACHER, task=(TASK,), seed=12)).losses(batch())
    # 8 bits of mantissa through three layers: a few per cent.
    assert np.allclose(list(losses[0].values()), exact, rtol=0.05)
    assert float(losses[0]["hidden"]) != float(exact[1])


def test_all_widths_share_one_trace(teacher: pb.Model) -> None:
    distiller = make(both_terms(), teacher)
    step = tf.function(distiller.update, input_signature=[SIGNATURE])
    for rows, length in ((3, 7), (5, 8), (2, 16)):
        step(batch(rows, length))
    assert step.experimental_get_tracing_count() == 1


def test_missing_loss_term_is_refused(teacher: pb.Model) -> None:
    distiller = make(both_terms(weights={"hidden": 1.0, "attention": 1.0}), teacher)
    with pytest.raises(ValueError, match="toy, stage hidden: the loss must give the terms hidden, attention; received"):
        distiller.update(batch())


def test_tiny_batches_are_awkward() -> None:
    # The tests above would prove little if every row were full.
    assert (tf.reduce_sum(batch()["input_mask"], axis=1).numpy() < 7).any() and tiny.BERT.hidden_size != 7
