"""Pairs of texts that an encoder reads one by one: head, loss, rows and answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
from scipy.special import log_softmax, softmax

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import dataset, plan_batches
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.data_checks import cut_warning
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import get_task, supervised_task
from pocketbert.training.dev_loss import mean_loss
from pocketbert.training.objectives.finetuning import Finetuning, label_stage
from pocketbert.training.stage import Epochs, OptimizerConfig
from pocketbert.training.step import TrainingModel

LABELS = ("no", "maybe", "yes")
CONFIG = tiny.BERT.replace(num_layers=1, initializer_range=0.3, hidden_dropout=0.0, attention_dropout=0.0)
CLASSES = TaskConfig(kind="classification", labels=LABELS, dropout=0.0, pairs="separate", pooling="mean")
SCORES = TaskConfig(kind="regression", dropout=0.0, pairs="separate", pooling="mean")
# Rows of 7, 4 and 6 tokens as five pairs; the classes of these.
ROWS = [0, 1, 2, 0, 1, 1, 2, 1, 0, 2]
GOLD = np.array([2, 0, 0, 1, 2], np.int32)


def model_of(task: TaskConfig) -> Model:
    model = pb.from_preset(get_task(task).encoder_config(CONFIG), task, seed=5)
    # New biases are 0, which would hide their absence.
    head = model.heads[task.kind].output_projection
    head.bias.assign(np.linspace(0.5, 1.5, head.bias.shape[0]))
    return model


def pairs_of_rows(length: int = 7) -> dict[str, tf.Tensor]:
    return {name: tf.gather(value, ROWS) for name, value in tiny.batch(CONFIG, length=length).items()}


def expected_logits(vectors: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Logits of each pair: [u, v, |u − v|, u·v] (InferSent, section 3.1), and the linear map."""
    rows = []
    for first, second in zip(vectors[:-1:2], vectors[1::2], strict=True):
        features = np.concatenate([first, second, np.abs(first - second), first * second])
        rows.append(features @ kernel + bias)
    return np.array(rows)


def vectors_of(model: Model, inputs: dict[str, tf.Tensor], pooling: str | None) -> np.ndarray:
    outputs = model.encoder(inputs)
    if pooling is None:
        return np.asarray(outputs["pooled_output"], np.float64)
    vectors = []
    for tokens, mask in zip(outputs["sequence_output"].numpy(), inputs["input_mask"].numpy(), strict=True):
        mean = tokens[mask == 1].mean(axis=0, dtype=np.float64)
        vectors.append(10 * mean / np.linalg.norm(mean))
    return np.array(vectors)


@pytest.mark.parametrize("pooling", [None, "mean"])
@pytest.mark.parametrize("task", [CLASSES, SCORES], ids=["classes", "scores"])
def test_head_matches_its_formula(task: TaskConfig, pooling: Any) -> None:
    task = dataclasses.replace(task, pooling=pooling)
    model, inputs = model_of(task), pairs_of_rows()
    head = model.heads[task.kind].output_projection
    assert head.kernel.shape[0] == 4 * CONFIG.hidden_size
    expected = expected_logits(vectors_of(model, inputs, pooling), head.kernel.numpy(), head.bias.numpy())
    expected = expected[:, 0] if task.kind == "regression" else expected
    # Both rows of a pair have its logits. float32 sums of 120 products up to 10.
    np.testing.assert_allclose(model(inputs)["logits"], np.repeat(expected, 2, axis=0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("task", [CLASSES, SCORES], ids=["classes", "scores"])
def test_loss_and_gradients_are_those_of_keras(task: TaskConfig) -> None:
    model, inputs = model_of(task), pairs_of_rows()
    gold = GOLD if task.kind == "classification" else GOLD.astype(np.float32)
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        loss = get_task(task).loss(model(inputs), tf.constant(np.repeat(gold, 2)), inputs["input_mask"])
    gradients = tape.gradient(loss, variables)
    head = model.heads[task.kind].output_projection
    with tf.GradientTape() as tape:
        outputs, mask = model.encoder(inputs)["sequence_output"], tf.cast(inputs["input_mask"], tf.float32)
        means = tf_keras.layers.GlobalAveragePooling1D()(outputs, mask=mask)
        first, second = tf.split(
            tf.gather(10 * tf.math.l2_normalize(means, axis=1), [*range(0, 10, 2), *range(1, 10, 2)]), 2
        )
        multiplied = tf_keras.layers.Multiply()([first, second])
        features = tf_keras.layers.Concatenate()([first, second, tf.abs(first - second), multiplied])
        logits = tf.matmul(features, head.kernel) + head.bias
        if task.kind == "classification":
            expected = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)(gold, logits)
        else:
            expected = tf_keras.losses.MeanSquaredError()(gold[:, np.newaxis], logits)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    for variable, gradient, other in zip(variables, gradients, tape.gradient(expected, variables), strict=True):
        assert (gradient is None) == (other is None), variable.name
        if gradient is not None:
            one, second_one = (np.asarray(tf.convert_to_tensor(part)) for part in (gradient, other))
            # Softmax does not read the bias of keys, whose gradient is rounding alone.
            np.testing.assert_allclose(one, second_one, rtol=2e-3, atol=2e-5 * max(1, np.abs(second_one).max()))


@pytest.mark.usefixtures("eager")
def test_fit_reports_the_loss_of_pairs() -> None:
    model, inputs = model_of(CLASSES), pairs_of_rows()
    logits = model(inputs)["logits"].numpy()[::2].astype(np.float64)
    expected = -log_softmax(logits, axis=1)[np.arange(5), GOLD].mean()
    model.compile(optimizer="sgd")
    assert np.ravel(model.test_on_batch(inputs, np.repeat(GOLD, 2)))[0] == pytest.approx(expected, rel=1e-5)


def test_swapped_texts_swap_their_vectors_alone() -> None:
    model, inputs = model_of(CLASSES), pairs_of_rows()
    swapped = {name: tf.gather(value, [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]) for name, value in inputs.items()}
    head, width = model.heads["classification"].output_projection, CONFIG.hidden_size
    kernel = head.kernel.numpy()
    before = model(inputs)["logits"].numpy()
    assert np.abs(model(swapped)["logits"].numpy() - before).max() > 0.1
    head.kernel.assign(np.concatenate([kernel[width : 2 * width], kernel[:width], kernel[2 * width :]]))
    np.testing.assert_allclose(model(swapped)["logits"], before, atol=1e-4)


def test_padding_does_not_change_answers() -> None:
    model = model_of(CLASSES)
    plain, padded = (model(pairs_of_rows(length))["logits"].numpy() for length in (7, 13))
    np.testing.assert_allclose(padded, plain, atol=1e-4)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("parts", [2, 4])
def test_micro_batches_keep_pairs_together(parts: int) -> None:
    # Five pairs: four and six rows; four parts of four, four and two rows.
    changes = []
    for micro_batches in (1, parts):
        model = model_of(CLASSES)
        start = {path: weight.numpy() for path, weight in model.weights_by_path().items()}
        stage = label_stage(
            CLASSES,
            name="",
            max_length=7,
            duration=Epochs(1),
            batch_size=8,
            micro_batches=micro_batches,
            optimizer=OptimizerConfig(learning_rate=0.1),
        )
        training = TrainingModel(model, Finetuning(), stage)
        training.compile(optimizer=tf_keras.optimizers.SGD(0.01))
        loss = float(
            tf.function(training.update)({**pairs_of_rows(), "labels": tf.constant(np.repeat(GOLD, 2))})["loss"]
        )
        weights = model.weights_by_path().items()
        changes.append((loss, {path: weight.numpy() - start[path] for path, weight in weights}))
    assert changes[0][0] == pytest.approx(changes[1][0], rel=1e-5)
    for path, change in changes[0][1].items():
        # Each gradient is summed in another order.
        np.testing.assert_allclose(
            changes[1][1][path], change, atol=1e-4 * max(np.abs(change).max(), 1e-2), err_msg=path
        )


def test_odd_rows_are_refused() -> None:
    model = model_of(CLASSES)
    with pytest.raises(UserError, match="needs two rows for each pair, those of its texts; received 3"):
        model(tiny.batch(CONFIG))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A network that predicts, with a vocabulary."""
    folder = tiny_finetuning.write_model(tmp_path_factory.mktemp("models") / "bare", CONFIG)
    model = model_of(CLASSES)
    model.tokenizer = pb.from_pretrained(folder).tokenizer
    return model


def pairs(count: int, seed: int = 0) -> Examples:
    """Pairs of texts with 2 to 19 words, and a class each."""
    first, second = (tiny_finetuning.examples(count, seed + part) for part in (0, 100))
    labels = np.random.default_rng(seed).integers(0, 3, count).astype(np.int32)
    return Examples(first.texts, second.texts, labels, first.ids, first.source)


def probabilities(model: Model, data: Examples, max_length: int) -> np.ndarray:
    """Each pair alone, from its tokens."""
    rows = []
    for first, second in zip(data.texts, data.pairs or (), strict=True):
        inputs = model.tokenizer([first, second], max_length=max_length)
        assert set(np.ravel(inputs["input_type_ids"])) == {0}
        rows.append(softmax(model(inputs)["logits"].numpy()[0].astype(np.float64)))
    return np.array(rows)


def test_answers_are_in_the_order_of_the_pairs(reader: Model) -> None:
    data = pairs(23)
    answers = reader.predict(list(zip(data.texts, data.pairs, strict=True)))
    expected = probabilities(reader, data, CONFIG.max_position_embeddings)
    shares = [[answer["probabilities"][label] for label in LABELS] for answer in answers]
    # The batches have other widths.
    np.testing.assert_allclose(shares, expected, atol=1e-4)
    assert [answer["label"] for answer in answers] == [LABELS[index] for index in expected.argmax(axis=1)]
    assert len({answer["label"] for answer in answers}) > 1


def test_evaluation_counts_pairs(reader: Model) -> None:
    data, length = pairs(23), 11
    predictor = model_predictor(reader, max_length=length)
    expected = probabilities(reader, data, length)
    right = expected.argmax(axis=1) == data.labels
    evaluator = predictor.evaluator(data)
    assert evaluator.metrics("now")["accuracy"] == pytest.approx(right.mean())
    scores = evaluator.scores()
    assert scores.examples == 23 and scores.pairs
    assert len(evaluator.mistakes(None)) == 23 - right.sum()
    task = supervised_task(reader.task)
    rows = task.rows(data, reader.tokenizer, length, most=11)
    assert len(rows) == 11
    score, decided = rows.score(predictor.forward(rows.encoded), "accuracy")
    assert decided is not None and len(decided) == 11 and score == pytest.approx(decided.mean())
    assert len(rows.answers(predictor.forward(rows.encoded))) == 11


def test_dev_loss_is_that_of_pairs(reader: Model) -> None:
    data, length = pairs(23), 11
    task = supervised_task(reader.task)
    encoded = task.encode(data, reader.tokenizer, length)
    outputs = model_predictor(reader, max_length=length).forward(encoded)
    expected = -np.log(probabilities(reader, data, length))[np.arange(23), data.labels].mean()
    assert mean_loss(task, encoded, outputs, batch_size=5) == pytest.approx(expected, rel=1e-4)


def test_soft_labels_follow_their_pairs(reader: Model) -> None:
    data = pairs(9)
    encoded = supervised_task(reader.task).encode(data, reader.tokenizer, 11)
    numbers = np.repeat(np.arange(9, dtype=np.float32), 2)[:, np.newaxis]
    encoded = dataclasses.replace(encoded, soft_labels=numbers)
    plan = plan_batches(encoded.lengths, batch_size=4, seed=1, epoch=0)
    for indices, (inputs, labels) in zip(plan, dataset(encoded, plan), strict=True):
        np.testing.assert_array_equal(inputs["soft_labels"].numpy()[:, 0], np.repeat(indices, 2))
        np.testing.assert_array_equal(labels, np.repeat(data.labels[indices], 2))


def test_cut_texts_are_counted_one_by_one(reader: Model) -> None:
    data, length = pairs(20), 9
    # Words are tokens, and two special tokens frame a text.
    cut = sum(len(text.split()) > length - 2 for text in [*data.texts, *data.pairs])
    assert 0 < cut < 40
    task = supervised_task(reader.task)
    assert f"{cut} of 40 texts" in str(cut_warning(task, [data], reader.tokenizer, length))


@pytest.mark.one_of_each("classification", "regression")
@pytest.mark.parametrize("kind", ["classification", "multi_label", "regression"])
def test_saved_head_reads_pairs_as_before(reader: Model, tmp_path: Path, kind: str) -> None:
    for pooling in (None, "mean"):
        labels = () if kind == "regression" else LABELS
        task = TaskConfig(kind=kind, name="likeness", labels=labels, pairs="separate", pooling=pooling)
        model = model_of(task)
        model.tokenizer = reader.tokenizer
        folder = tmp_path / str(pooling)
        model.save_pretrained(folder)
        loaded = pb.from_pretrained(folder)
        assert loaded.task == task
        inputs = pairs_of_rows()
        np.testing.assert_array_equal(loaded(inputs)["logits"], model(inputs)["logits"])


def test_transformers_refuses_the_directory(reader: Model, tmp_path: Path) -> None:
    from transformers import AutoConfig

    reader.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="pocketbert_bert"):
        AutoConfig.from_pretrained(tmp_path / "model")


def test_keras_file_keeps_the_head(tmp_path: Path) -> None:
    model, inputs = model_of(CLASSES), pairs_of_rows()
    model.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(inputs)["logits"], model(inputs)["logits"])


def test_single_texts_are_refused(reader: Model) -> None:
    with pytest.raises(UserError, match="reads pairs of texts; received single texts from the texts; give the"):
        reader.predict(["one text"])
    with pytest.raises(UserError, match="windows are for single texts; received pairs"):
        reader.predict(["one text"], windows=True)
    single = dataclasses.replace(pairs(5), pairs=None)
    with pytest.raises(UserError, match="reads pairs of texts; received single texts"):
        model_predictor(reader).evaluator(single)
    assert reader.predict([]) == []


def test_configuration_is_checked() -> None:
    with pytest.raises(UserError, match="pairs must be separate, or None for one row; received 'both'"):
        TaskConfig(kind="regression", pairs="both")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="pairs is for classification and multi_label and regression; received"):
        TaskConfig(kind="span", pairs="separate")
