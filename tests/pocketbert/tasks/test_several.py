"""Several heads on one encoder. Oracles: transformers' TF classes with the same weights, Keras' losses, seqeval."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
import tiny_heads
import transformers
from safetensors.numpy import load_file
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.layers.loss_normalization import count_weights, normalize_by, shared_totals
from pocketbert.tasks.parts import packed_labels, part_labels
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.registry import get_task
from pocketbert.tasks.several import Several
from pocketbert.training.dev_loss import mean_loss
from pocketbert_runtime.answers.several import part_outputs

CONFIG = tiny.BERT.replace(num_layers=1)
MOOD = TaskConfig(kind="classification", name="mood", labels=("low", "middle", "high"), dropout=0.0)
TOPICS = TaskConfig(kind="multi_label", name="topics", labels=("a", "b"), dropout=0.0)
STARS = TaskConfig(kind="regression", name="stars", dropout=0.0)
SLOTS = TaskConfig(kind="token_classification", name="slots", labels=("O", "B-X", "I-X", "B-Y", "I-Y"), dropout=0.0)
LABELS = {
    "mood": np.array([2, 0, 1], np.int32),
    "topics": np.array([[1, 0], [0, 0], [1, 1]], np.int32),
    "stars": np.array([0.25, -1.5, 3.0], np.float32),
    "slots": np.array([[-1, 0, 2, -1, 4, 1, -1], [-1, 3, -1, -1, -1, -1, -1], [-1, 1, 2, -1, 0, -1, -1]], np.int32),
}


def several(*parts: TaskConfig, **weights: float) -> Several:
    parts = tuple(dataclasses.replace(part, weight=weights.get(part.name)) for part in parts)
    task = get_task(TaskConfig(kind="several", tasks=parts))
    assert isinstance(task, Several)
    return task


ALL = several(SLOTS, MOOD, TOPICS, STARS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pb.from_pretrained(tiny_finetuning.write_model(tmp_path_factory.mktemp("model") / "model")).tokenizer


def model_of(task: Several, tokenizer: Any = None, config: EncoderConfig = CONFIG) -> pb.Model:
    model = pb.from_preset(task.encoder_config(config), [task.config], tokenizer, seed=3)
    random = np.random.default_rng(4)
    for path, weight in model.weights_by_path().items():
        if path.startswith("heads."):
            weight.assign(random.normal(0, 0.3, weight.shape))
    return model


def test_labels_come_apart_as_they_were() -> None:
    packed = packed_labels(ALL, LABELS)
    # Tags last, whatever the order of the heads.
    assert packed.shape == (3, 1 + 2 + 1 + 7) and packed.dtype == np.float32
    split = part_labels(ALL, packed)
    for name, labels in LABELS.items():
        assert split[name].numpy().dtype == labels.dtype
        np.testing.assert_array_equal(split[name], labels)


def test_two_heads_with_tags_share_the_last_columns() -> None:
    task = several(SLOTS, dataclasses.replace(SLOTS, name="names"), MOOD)
    labels = {"mood": LABELS["mood"], "slots": LABELS["slots"], "names": LABELS["slots"][::-1]}
    split = part_labels(task, tf.constant(packed_labels(task, labels)))
    np.testing.assert_array_equal(split["names"], labels["names"])
    np.testing.assert_array_equal(split["slots"], labels["slots"])


def test_loss_is_the_weighted_sum_of_kerass_losses() -> None:
    weights = {"mood": 0.5, "topics": 3.0, "slots": 2.0}
    task, inputs = several(SLOTS, MOOD, TOPICS, STARS, **weights), tiny.batch(CONFIG)
    outputs, labels = model_of(task)(inputs), packed_labels(task, LABELS)
    counted = LABELS["slots"] >= 0
    classes = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    alone = {
        "mood": classes(LABELS["mood"], outputs["mood_logits"]),
        "topics": tf_keras.losses.BinaryCrossentropy(from_logits=True)(LABELS["topics"], outputs["topics_logits"]),
        "stars": tf_keras.losses.MeanSquaredError()(LABELS["stars"][:, None], outputs["stars_logits"][:, None]),
        "slots": classes(LABELS["slots"][counted], outputs["slots_token_logits"].numpy()[counted]),
    }
    expected = sum(weights.get(name, 1.0) * float(loss) for name, loss in alone.items())
    # float32 sums of a few terms.
    assert float(task.loss(outputs, labels, inputs["input_mask"])) == pytest.approx(expected, rel=1e-5)


def test_smoothed_loss_smooths_what_has_labels() -> None:
    task, inputs = several(MOOD, STARS, mood=2.0), tiny.batch(CONFIG)
    outputs, mask = model_of(task)(inputs), inputs["input_mask"]
    labels = packed_labels(task, LABELS)
    uniform = float(-tf.reduce_mean(tf.nn.log_softmax(outputs["mood_logits"])))
    squares = float(np.mean((outputs["stars_logits"].numpy() - LABELS["stars"]) ** 2))
    assert float(task.uniform_loss(outputs, labels, mask)) == pytest.approx(2 * uniform + squares, rel=1e-5)


# Mood of two texts, topics of two others, the stars of one, and tags of one.
PARTIAL = {
    "mood": np.array([2, np.nan, 1], np.float32),
    "topics": np.array([[np.nan, np.nan], [0, 0], [1, 1]], np.float32),
    "stars": np.array([np.nan, -1.5, np.nan], np.float32),
    "slots": np.where(np.arange(3)[:, np.newaxis] == 1, -1, LABELS["slots"]),
}


def kerass_losses(outputs: Any, labels: dict[str, np.ndarray]) -> dict[str, float]:
    """Keras' loss of each head on the texts that have a label for it."""
    classes = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = {
        "mood": classes,
        "topics": tf_keras.losses.BinaryCrossentropy(from_logits=True),
        "stars": tf_keras.losses.MeanSquaredError(),
        "slots": classes,
    }
    values = {}
    for name, loss in losses.items():
        (logits,) = part_outputs(name, outputs).values()
        counted = labels[name] >= 0 if name == "slots" else ~np.isnan(labels[name].reshape(3, -1)[:, 0])
        answers, gold = logits.numpy()[counted], labels[name][counted]
        both = (gold[:, None], answers[:, None]) if name == "stars" else (gold, answers)
        values[name] = float(loss(*both)) if len(gold) else 0.0
    return values


def test_missing_labels_come_apart() -> None:
    split = part_labels(ALL, packed_labels(ALL, PARTIAL))
    np.testing.assert_array_equal(split["mood"], np.array([2, -1, 1], np.int32))
    np.testing.assert_array_equal(split["topics"], [[-1, -1], [0, 0], [1, 1]])
    np.testing.assert_array_equal(split["stars"], PARTIAL["stars"])
    np.testing.assert_array_equal(split["slots"], PARTIAL["slots"])


def test_loss_of_partial_labels_is_kerass_on_own_texts() -> None:
    weights = {"mood": 0.5, "topics": 3.0, "slots": 2.0, "stars": 0.25}
    task, inputs = several(SLOTS, MOOD, TOPICS, STARS, **weights), tiny.batch(CONFIG)
    model, labels = model_of(task), packed_labels(ALL, PARTIAL)
    outputs, mask = model(inputs), inputs["input_mask"]
    expected = sum(weights[name] * loss for name, loss in kerass_losses(outputs, PARTIAL).items())
    loss = float(task.loss(outputs, labels, mask))
    assert loss == pytest.approx(expected, rel=1e-5)
    # Keras' fit learns the same.
    model.compile()
    assert float(model.compute_loss(inputs, labels, outputs, None)) == pytest.approx(expected, rel=1e-5)
    # In parts of one text and of two, which share the divisors.
    with count_weights() as counted:
        task.loss(outputs, labels, mask)
    total = 0.0
    for rows in (slice(0, 1), slice(1, 3)):
        with normalize_by(shared_totals([counted])):
            part = {name: values[rows] for name, values in outputs.items()}
            total += float(task.loss(part, labels[rows], mask[rows]))
    assert total == pytest.approx(loss, rel=1e-5)


def test_smoothed_loss_of_partial_labels() -> None:
    task, inputs = several(MOOD, TOPICS), tiny.batch(CONFIG)
    outputs, labels = model_of(task)(inputs), packed_labels(several(MOOD, TOPICS), PARTIAL)
    mood = -log_softmax(outputs["mood_logits"].numpy()[[0, 2]], axis=1).mean()
    topics = outputs["topics_logits"].numpy()[1:]
    topics = (np.logaddexp(0, topics) - 0.5 * topics).mean()
    received = float(task.uniform_loss(outputs, labels, inputs["input_mask"]))
    assert received == pytest.approx(mood + topics, rel=1e-5)


@pytest.mark.parametrize("missing", PARTIAL)
def test_head_without_labels_in_a_batch_learns_nothing(missing: str) -> None:
    task, inputs = ALL, tiny.batch(CONFIG)
    model, none = model_of(task), np.full_like(PARTIAL[missing], -1 if missing == "slots" else np.nan)
    labels = packed_labels(task, {**PARTIAL, missing: none})
    weights = model.weights_by_path()
    with tf.GradientTape() as tape:
        outputs = model(inputs)
        loss = task.loss(outputs, labels, inputs["input_mask"])
    expected = sum(kerass_losses(outputs, {**PARTIAL, missing: none}).values())
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
    moved = {path for path, gradient in gradients.items() if np.any(tf.convert_to_tensor(gradient))}
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients.values())
    of_head = {path for path in weights if path.startswith(f"heads.several.parts.{missing}.")}
    assert of_head and not of_head & moved
    assert {path for path in weights if path.startswith("heads.")} - of_head <= moved


def test_losses_and_logits_equal_those_of_transformers(tmp_path: Path) -> None:
    """Each head beside another has the loss that transformers' class for it alone has."""
    task, inputs = several(MOOD, SLOTS, slots=2.0), tiny.batch(CONFIG)
    model, total = model_of(task), 0.0
    weights = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    for part, class_name, weight in ((MOOD, "SequenceClassification", 1.0), (SLOTS, "TokenClassification", 2.0)):
        alone = pb.from_preset(get_task(part).encoder_config(CONFIG), [part])
        for path, variable in alone.weights_by_path().items():
            variable.assign(weights[path.replace(f"heads.{part.kind}.", f"heads.several.parts.{part.name}.")])
        alone.save_pretrained(tmp_path / part.name)
        config = transformers.AutoConfig.from_pretrained(tmp_path / part.name)
        reference = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
            getattr(transformers, f"TFBertFor{class_name}")(config),
            load_file(tmp_path / part.name / "model.safetensors"),
            allow_missing_keys=False,
        )
        labels = np.where(LABELS[part.name] < 0, -100, LABELS[part.name])
        answers = reference(
            input_ids=inputs["input_word_ids"],
            attention_mask=inputs["input_mask"],
            token_type_ids=inputs["input_type_ids"],
            labels=tf.constant(labels),
        )
        (output,) = part_outputs(part.name, model(inputs)).values()
        real = inputs["input_mask"].numpy() == 1 if part is SLOTS else slice(None)
        # 2e-5 is what two correct float32 implementations reach at these sizes.
        np.testing.assert_allclose(output.numpy()[real], answers.logits.numpy()[real], atol=2e-5)
        total += weight * float(tf.reduce_mean(answers.loss))
    packed = packed_labels(task, {name: LABELS[name] for name in ("mood", "slots")})
    assert float(task.loss(model(inputs), packed, inputs["input_mask"])) == pytest.approx(total, rel=1e-5)


@pytest.mark.one_of_each("bert", "roberta")
@pytest.mark.parametrize("family", ["bert", "roberta", "mobilebert"])
def test_models_survive_saving(tmp_path: Path, family: str) -> None:
    task, config = several(MOOD, SLOTS, TOPICS, STARS, slots=2.0), tiny.FAMILIES[family].replace(num_layers=1)
    model = model_of(task, config=config)
    model.save_pretrained(tmp_path / "model")
    loaded = pb.from_pretrained(tmp_path / "model")
    assert loaded.task == task.config and loaded.config == model.config
    answers = loaded(tiny.batch(config))
    for name, output in model(tiny.batch(config)).items():
        np.testing.assert_array_equal(answers[name], output)


def test_pooler_stays_for_a_head_that_reads_it() -> None:
    assert several(MOOD, SLOTS).encoder_config(CONFIG).pooler == "tanh"
    mean = dataclasses.replace(MOOD, pooling="mean")
    assert several(mean, SLOTS).encoder_config(CONFIG).pooler == "none"


@pytest.mark.usefixtures("eager")
def test_all_heads_read_the_first_tokens(tokenizer: Any) -> None:
    task = several(MOOD, SLOTS)
    texts = ["good film " * 9, "a bad plot"]
    rows = task.rows(Examples(texts, None, None, ["0", "1"], "here"), tokenizer, 8)
    assert rows.encoded.lengths.tolist() == [8, 5]
    # Six words fit between [CLS] and [SEP]; the others of the first text have no place.
    assert rows.decided["slots_token_logits"].tolist() == [1, 2, 3, 4, 5, 6, 9, 10, 11]
    alone = pb.WordPieceTokenizer(tokenizer.vocabulary.path)(texts, max_length=8)
    np.testing.assert_array_equal(rows.encoded.word_ids[:8], alone["input_word_ids"][0])


@pytest.mark.usefixtures("eager")
def test_each_head_answers_as_alone(tokenizer: Any) -> None:
    task = several(MOOD, SLOTS, TOPICS, STARS)
    model = model_of(task, tokenizer)
    texts = tiny_finetuning.examples(7, 3).texts
    together = model.predict(texts, top_k=2)
    weights = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    for part in task.config.tasks or ():
        alone = pb.from_preset(get_task(part).encoder_config(CONFIG), [part], tokenizer)
        for path, variable in alone.weights_by_path().items():
            variable.assign(weights[path.replace(f"heads.{part.kind}.", f"heads.several.parts.{part.name}.")])
        options: dict[str, Any] = {"top_k": 2} if part in (MOOD, TOPICS) else {}
        for both, answer in zip(together, alone.predict(texts, **options), strict=True):
            assert both[part.name].keys() == answer.keys()
            name, expected = next(iter(answer.items()))
            received = both[part.name][name]
            if part == SLOTS:
                received, expected = ([{**span, "probability": 0} for span in spans] for spans in (received, expected))
            # float32 sums of a score.
            assert received == (pytest.approx(expected, abs=1e-5) if part == STARS else expected)
    assert {*together[0]} == {"mood", "slots", "topics", "stars"}


@pytest.mark.usefixtures("eager")
def test_metrics_have_the_name_of_their_head(tokenizer: Any) -> None:
    data = tiny_heads.data()
    task = get_task(data.task)
    assert isinstance(task, Several)
    predictor = model_predictor(model_of(task, tokenizer), max_length=19)
    evaluator = predictor.evaluator(data.dev)
    metrics = evaluator.metrics("now")
    assert [*metrics] == [
        "mean_of_heads", "mood_accuracy", "mood_f1", "slots_f1", "slots_precision", "slots_recall", "slots_accuracy",
    ]  # fmt: skip
    assert metrics["mean_of_heads"] == pytest.approx((metrics["mood_accuracy"] + metrics["slots_f1"]) / 2)
    scores = evaluator.scores()
    assert scores.baseline is not None and "never a span (slots)" in scores.baseline["answer"]
    assert scores.interval is not None and scores.interval[0] <= scores.score <= scores.interval[1]
    labels = [mistake.label.partition(": ")[0] for mistake in evaluator.mistakes()]
    assert {*labels} == {"mood", "slots"} and len(labels) <= 20
    assert [*predictor.evaluator(data.dev, metrics=["mood_macro_f1"]).metrics("now")] == ["mood_macro_f1"]


@pytest.mark.usefixtures("eager")
def test_metrics_count_the_texts_with_labels(tokenizer: Any) -> None:
    columns = tiny_heads.table(31, 2)
    columns["mood"] = [mood if row % 3 else "" for row, mood in enumerate(columns["mood"])]
    columns["slots"] = [tags if row % 3 != 1 else "" for row, tags in enumerate(columns["slots"])]
    data: Any = pb.data.heads(columns, tiny_heads.KINDS, dev=columns).dev
    task = get_task(tiny_heads.task())
    assert isinstance(task, Several)
    model = model_of(task, tokenizer)
    answers = model.predict(data.texts)
    rows_of = {"mood": [row for row in range(31) if row % 3], "slots": [row for row in range(31) if row % 3 != 1]}
    predictor = model_predictor(model, max_length=21)
    evaluator = predictor.evaluator(data)
    metrics = evaluator.metrics("now")
    gold = [columns["mood"][row] for row in rows_of["mood"]]
    predicted = [answers[row]["mood"]["label"] for row in rows_of["mood"]]
    assert metrics["mood_accuracy"] == pytest.approx(accuracy_score(gold, predicted))
    spans: list[set[Any]] = [set(), set()]
    for row in rows_of["slots"]:
        words, start = data.texts[row].split(), 0
        for word, tag in zip(words, columns["slots"][row], strict=True):
            spans[0] |= {(row, start, start + len(word), tag[2:])} if tag != "O" else set()
            start += len(word) + 1
        spans[1] |= {(row, span["start"], span["end"], span["label"]) for span in answers[row]["slots"]["spans"]}
    assert metrics["slots_f1"] == pytest.approx(2 * len(spans[0] & spans[1]) / (len(spans[0]) + len(spans[1])))
    scores = evaluator.scores()
    assert scores.baseline is not None
    most = max(map(gold.count, ("low", "high"))) / len(gold)
    assert scores.baseline["metrics"]["mood_accuracy"] == pytest.approx(most)
    assert scores.interval is not None and scores.interval[0] <= scores.score <= scores.interval[1]
    for mistake in evaluator.mistakes(None):
        assert data.texts[mistake.index] == mistake.text
        assert mistake.index in rows_of[mistake.label.partition(": ")[0]]
    rows = task.rows(data, tokenizer, 21)
    outputs = predictor.forward(rows.encoded)
    assert rows.score(outputs, "mood_accuracy")[0] == metrics["mood_accuracy"]
    score, right = rows.score(outputs, "mean_of_heads")
    assert score == metrics["mean_of_heads"] and right is not None and len(right) == 31
    # The loss of the dev split: cross-entropy by hand.
    logits = log_softmax(outputs["mood_logits"][rows_of["mood"]], axis=1)
    mood = -np.mean([logits[index, ("high", "low").index(label)] for index, label in enumerate(gold)])
    tags = log_softmax(outputs["slots_token_logits"][rows.decided["slots_token_logits"]], axis=1)
    labels = [tiny_heads.TAGS.index(tag) for row in rows_of["slots"] for tag in columns["slots"][row]]
    slots = -np.mean(tags[np.arange(len(labels)), labels])
    encoded = task.encode(data, tokenizer, 21)
    assert mean_loss(task, encoded, outputs, 7) == pytest.approx(mood + slots, rel=1e-5)
    few = task.rows(data, tokenizer, 21, most=5)
    assert len(few) <= 5 and all(len(part) for part in few.parts.values())


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ((MOOD,), "at least two; received mood"),
        ((), "at least two; received none"),
        ((MOOD, MOOD), "different names; received mood, mood"),
        ((MOOD, dataclasses.replace(SLOTS, name="my_slots")), "letters and digits alone.*'my_slots'"),
        ((MOOD, dataclasses.replace(SLOTS, name="token")), "received 'token'"),
        ((MOOD, TaskConfig(kind="span", name="answer")), "one of classification, multi_label, .*received span"),
        ((dataclasses.replace(MOOD, weight=0.0), dataclasses.replace(SLOTS, weight=0.0)), "a weight above 0"),
        ((dataclasses.replace(MOOD, pairs="separate"), SLOTS), "single texts; received separate pairs for mood"),
        (({"kind": "classification", "labels": ["a", "b"]}, SLOTS), "letters and digits alone"),
        (({"kind": "classification", "colour": "red"}, SLOTS), "each with kind, name and labels; received {'kind"),
    ],
)
def test_wrong_heads_are_refused(tasks: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        TaskConfig(kind="several", tasks=tasks)


def test_heads_of_one_task_are_refused() -> None:
    with pytest.raises(UserError, match="tasks is for several heads; received it for 'classification'"):
        dataclasses.replace(MOOD, tasks=(MOOD, SLOTS))
    with pytest.raises(UserError, match="a number of at least 0; received -1"):
        dataclasses.replace(MOOD, weight=-1.0)


def test_pairs_are_refused(tokenizer: Any) -> None:
    with pytest.raises(UserError, match="inputs must be texts; received a pair"):
        model_of(several(MOOD, SLOTS), tokenizer).predict([("a film", "a plot")])
