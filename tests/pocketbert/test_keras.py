"""A model under Keras: several heads, losses whatever the batch size, inputs as users pass them, saving."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import TaskConfig
from pocketbert.training.optimizers import AdamW

SMALL = tiny.BERT.replace(num_layers=1)
MOOD = TaskConfig(kind="classification", name="mood", labels=("no", "perhaps", "yes"))
TOPIC = TaskConfig(kind="classification", name="topic", labels=("a", "b", "c", "d"))
SCORE = TaskConfig(kind="regression", name="score")
CLASSES = np.array([2, 0, 1])
PRETRAINING = [TaskConfig(kind="masked_lm"), TaskConfig(kind="next_sentence")]


@pytest.fixture(scope="module")
def mood() -> pb.Model:
    return pb.from_preset(SMALL, [MOOD], seed=3)


@pytest.fixture(scope="module")
def words() -> pb.Model:
    model = pb.from_preset(SMALL, PRETRAINING, seed=3)
    model.compile(tf_keras.optimizers.SGD(0.1))
    return model


def inputs(rows: int = 3) -> dict[str, tf.Tensor]:
    batch = tiny.batch(tiny.BERT)
    return {name: tf.concat([value] * (rows // 3), 0) for name, value in batch.items()}


def cross_entropies(logits: Any, labels: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, labels[..., np.newaxis], -1)[..., 0]


# Heads


def test_outputs_of_several_heads_are_named_by_head() -> None:
    model = pb.from_preset(SMALL, [MOOD, TOPIC, SCORE], seed=3)
    assert list(model.heads) == ["mood", "topic", "regression"]
    outputs = model(inputs())
    assert {name: value.shape[1:] for name, value in outputs.items()} == {
        "mood_logits": [3],
        "topic_logits": [4],
        "regression_logits": [],
    }
    listed = model.features(inputs(), ["logits"])["logits"]
    assert all(np.array_equal(*pair) for pair in zip(listed, outputs.values(), strict=True))
    assert list(pb.from_preset(SMALL, [MOOD])(inputs())) == ["logits"]
    two_kinds = pb.from_preset(SMALL, [MOOD, SCORE])(inputs())
    assert list(two_kinds) == ["classification_logits", "regression_logits"]


@pytest.mark.usefixtures("eager")
def test_two_heads_learn_from_their_own_labels() -> None:
    model = pb.from_preset(SMALL, [MOOD, SCORE], seed=3)
    model.compile(tf_keras.optimizers.SGD(0.0))
    scores = np.array([0.5, 4.0, 2.5], np.float32)
    outputs = {name: value.numpy() for name, value in model(inputs()).items()}
    losses = {
        "classification_logits_loss": cross_entropies(outputs["classification_logits"], CLASSES).mean(),
        "regression_logits_loss": np.mean((outputs["regression_logits"] - scores) ** 2),
    }
    labels = {"classification_logits": CLASSES, "regression_logits": scores}
    metrics = model.evaluate(inputs(), labels, verbose=0, return_dict=True)
    assert metrics == pytest.approx({"loss": sum(losses.values()), **losses}, rel=1e-5)
    one = model.evaluate(inputs(), {"classification_logits": CLASSES}, verbose=0, return_dict=True)
    assert one["loss"] == pytest.approx(losses["classification_logits_loss"], rel=1e-5)
    with pytest.raises(pb.UserError, match="labels must be for the outputs classification_logits, regression_logits"):
        model.fit(inputs(), {"logits": CLASSES}, verbose=0)
    with pytest.raises(pb.UserError, match="labels must be a dict by output name; this model gives classification_l"):
        model.fit(inputs(), CLASSES, verbose=0)


def test_several_heads_survive_a_model_directory(tmp_path: Path) -> None:
    for tasks in ([MOOD, TOPIC, SCORE], [SCORE, MOOD]):
        model = pb.from_preset(SMALL, tasks, seed=3)
        model.save_pretrained(tmp_path / "model", overwrite=True)
        loaded = pb.from_pretrained(tmp_path / "model")
        assert loaded.tasks == tuple(tasks)
        expected, outputs = model(inputs()), loaded(inputs())
        assert list(outputs) == list(expected)
        assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
    model = pb.from_preset(SMALL, [MOOD, TOPIC])
    model.save_pretrained(tmp_path / "model", overwrite=True)
    assert pb.from_pretrained(tmp_path / "model", task=TOPIC)(inputs())["logits"].shape == [3, 4]


@pytest.mark.parametrize("names", [("", ""), ("mood", "mood"), ("mood", "a.b"), ("mood", "regression")])
def test_heads_of_one_kind_need_names(names: tuple[str, str]) -> None:
    tasks = [TaskConfig(kind="classification", name=name, labels=("a", "b")) for name in names]
    with pytest.raises(pb.UserError, match="tasks of one kind need names that differ, of letters.*; received '"):
        pb.from_preset(SMALL, [*tasks, SCORE])


# Losses


def masked_words(rows: int) -> tuple[dict[str, tf.Tensor], np.ndarray]:
    """Labels at 0 to 6 positions a row; the others hold -1 or transformers' -100."""
    random = np.random.default_rng(5)
    labels = random.integers(0, SMALL.vocab_size, [rows, 7])
    return inputs(rows), np.where(
        np.arange(7) < random.integers(0, 7, [rows, 1]), labels, random.choice([-1, -100], [rows, 7])
    )


def test_masked_lm_loss_is_the_mean_over_words_for_every_batch_size(words: pb.Model) -> None:
    batch, labels = masked_words(12)
    sides = np.arange(12) % 2
    outputs = words(batch)
    counted = labels >= 0
    word_loss = cross_entropies(outputs["prediction_logits"], np.maximum(labels, 0))[counted].mean()
    side_loss = cross_entropies(outputs["seq_relationship_logits"], sides).mean()
    expected = {
        "loss": word_loss + side_loss,
        "prediction_logits_loss": word_loss,
        "seq_relationship_logits_loss": side_loss,
    }
    for size in (12, 5, 1):
        metrics = words.evaluate(
            batch,
            {"prediction_logits": labels, "seq_relationship_logits": sides},
            batch_size=size,
            verbose=0,
            return_dict=True,
        )
        assert metrics == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("eager")
def test_metrics_and_weights_leave_unlabelled_words_out() -> None:
    model = pb.from_preset(SMALL, PRETRAINING[:1], seed=3)
    batch, labels = masked_words(6)
    counted = labels >= 0
    logits = model(batch)["prediction_logits"].numpy()
    labels[0, 0] = logits[0, 0].argmax() if counted[0, 0] else labels[0, 0]
    model.compile(tf_keras.optimizers.SGD(0.1), metrics={"prediction_logits": "accuracy"})
    weights = np.array([0.5, 3.0, 0.0, 1.0, 2.0, 1.0], np.float32)
    losses = cross_entropies(logits, np.maximum(labels, 0))
    right = (logits.argmax(-1) == labels)[counted].mean()
    metrics = model.evaluate(batch, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert metrics["loss"] == pytest.approx((losses * weights[:, np.newaxis])[counted].mean(), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(right)
    nothing = model.fit(batch, np.full_like(labels, -100), verbose=0).history["loss"]
    assert nothing == [0.0]


def test_labels_outside_the_classes_are_refused(mood: pb.Model, words: pb.Model) -> None:
    mood.compile(tf_keras.optimizers.SGD(0.0))
    for wrong in (3, -100):
        with pytest.raises(pb.UserError, match=f"^labels must be class indices from 0 to 2; received {wrong}$"):
            mood.fit(inputs(), np.array([0, wrong, 2]), verbose=0)
    with pytest.raises(pb.UserError, match="^labels must be class indices from 0 to 2; received 3$"):
        mood.evaluate(tf.data.Dataset.from_tensors((inputs(), np.array([0, 3, 2]))), verbose=0)
    batch, labels = masked_words(3)
    labels[1, 2] = SMALL.vocab_size
    with pytest.raises(pb.UserError, match="^labels must be token ids from 0 to 96; received 97$"):
        words.evaluate(batch, {"prediction_logits": labels}, verbose=0)
    spans = pb.from_preset(SMALL, [TaskConfig(kind="span")])
    spans.compile(tf_keras.optimizers.SGD(0.0))
    with pytest.raises(pb.UserError, match="^labels must be token positions from 0 .*; received 7$"):
        spans.evaluate(inputs(), np.array([[0, 1], [2, 7], [1, 1]]), verbose=0)


# Inputs


@pytest.mark.one_of_each("bert-bool", "bert-float32", "bert-uint8")
@pytest.mark.parametrize("dtype", [bool, np.float32, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("name", ["bert", "mobilebert"])
def test_masks_of_any_type_give_the_same(name: str, dtype: type) -> None:
    config = tiny.FAMILIES[name].replace(num_layers=1)
    model, batch = pb.from_preset(config, [MOOD], seed=3), tiny.batch(config)
    other = {**batch, "input_mask": batch["input_mask"].numpy().astype(dtype)}
    expected = model(batch)["logits"].numpy()
    np.testing.assert_array_equal(model(other)["logits"], expected)
    np.testing.assert_array_equal(model.features(other, ["logits"])["logits"][0], expected)
    graph = tf.function(lambda batch: model(batch)["logits"])
    np.testing.assert_allclose(graph(other), expected, rtol=0, atol=2e-5)


def test_a_mask_of_other_numbers_is_refused(mood: pb.Model) -> None:
    batch = inputs()
    added = {**batch, "input_mask": (tf.cast(batch["input_mask"], tf.float32) - 1.0) * 1e4}
    match = "^a float input_mask must hold 1 for tokens and 0 for padding; received -10000"
    with pytest.raises(pb.UserError, match=match):
        mood(added)
    mood.compile(tf_keras.optimizers.SGD(0.0))
    with pytest.raises(pb.UserError, match=match):
        mood.evaluate(added, CLASSES, verbose=0)


def test_inputs_of_another_kind_are_refused(mood: pb.Model) -> None:
    batch = inputs()
    with pytest.raises(pb.UserError, match="^inputs must be a mapping with input_word_ids; received tuple; if it is"):
        mood((batch, CLASSES))
    with pytest.raises(pb.UserError, match="^input_word_ids must be integers; received float32$"):
        mood({**batch, "input_word_ids": tf.cast(batch["input_word_ids"], tf.float32)})


def test_inputs_longer_than_the_positions_are_refused(mood: pb.Model) -> None:
    match = r"^inputs must have at most 29 tokens \(max_position_embeddings\), so truncate them; received 31$"
    longer = tiny.batch(tiny.BERT, length=31)
    with pytest.raises(pb.UserError, match=match):
        mood(longer)
    with pytest.raises(pb.UserError, match=match):
        tf.function(lambda batch: mood(batch))(longer)
    mood.compile(tf_keras.optimizers.SGD(0.0))
    # Here the length is known only when the graph runs.
    data = tf.data.Dataset.from_generator(
        lambda: [(longer, CLASSES)],
        output_signature=({name: tf.TensorSpec([3, None], tf.int32) for name in longer}, tf.TensorSpec([3], tf.int32)),
    )
    with pytest.raises(pb.UserError, match=match):
        mood.evaluate(data, verbose=0)
    assert mood(tiny.batch(tiny.BERT, length=29))["logits"].shape == [3, 3]


# Saving


@pytest.mark.usefixtures("eager")
def test_saved_model_loads_and_trains(tmp_path: Path) -> None:
    config = SMALL.replace(hidden_dropout=0.0, attention_dropout=0.0)
    tasks = [TaskConfig(kind="classification", labels=MOOD.labels, dropout=0.0), TaskConfig(kind="span")]
    model, batch = pb.from_preset(config, tasks, seed=3), inputs()
    model.compile(AdamW(1e-2))
    labels = {"logits": CLASSES, "start_logits": CLASSES, "end_logits": CLASSES + 1}
    model.fit(batch, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is pb.Model and (loaded.config, loaded.tasks) == (model.config, model.tasks)
    for name, value in model(batch).items():
        np.testing.assert_array_equal(loaded(batch)[name], value)
    # The optimizer's moments came too.
    for network in (model, loaded):
        network.fit(batch, labels, verbose=0)
    for name, variable in model.named_variables().items():
        # Without them a step would differ by a part of the rate, 1e-2; Adam enlarges what is rounding.
        np.testing.assert_allclose(loaded.named_variables()[name], variable, rtol=0, atol=1e-4, err_msg=name)


def test_copies_are_equal_and_independent(tmp_path: Path) -> None:
    model = pb.from_preset(SMALL, [MOOD], seed=3)
    tokenizer: Any = object()
    model.tokenizer = tokenizer
    expected = model(inputs())["logits"].numpy()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copied(inputs())["logits"], expected)
        for variable in copied.weights_by_path().values():
            variable.assign(tf.zeros_like(variable))
    np.testing.assert_array_equal(model(inputs())["logits"], expected)
    assert copy.deepcopy(model).tokenizer is tokenizer
    clone = tf_keras.models.clone_model(model)
    assert type(clone) is pb.Model and clone.get_config() == model.get_config()


@pytest.mark.parametrize("name", ["model.h5", "folder", "model.hdf5"])
def test_other_formats_are_refused_before_anything_is_written(mood: pb.Model, name: str, tmp_path: Path) -> None:
    with pytest.raises(pb.UserError, match=r"^Keras saves this model as \.keras files; received .*use save_pretrained"):
        mood.save(tmp_path / name)
    with pytest.raises(pb.UserError, match=r"^Keras saves this model as \.keras files"):
        mood.save(tmp_path / "model.keras", save_format="h5")
    assert not list(tmp_path.iterdir())
