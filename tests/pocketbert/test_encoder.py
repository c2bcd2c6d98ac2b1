"""What the encoder promises beyond parity: features on demand, padding, precision, every way to run it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.graph_form import GraphForm
from pocketbert.model import Model
from pocketbert.presets import PRESETS

CLASSIFICATION = TaskConfig(kind="classification", labels=("no", "perhaps", "yes"))
# Two float32 evaluations of the same sums in another order, on values of order 1 through a few layers.
ATOL = 2e-5
families = pytest.mark.parametrize("config", tiny.FAMILIES.values(), ids=tiny.FAMILIES)


def shake(model: Model, seed: int = 5) -> Model:
    """Gives every weight a value of its own, the biases and norms too, so that none can be left out unseen."""
    generator = np.random.default_rng(seed)
    for path, variable in model.weights_by_path().items():
        if variable.shape.rank == 1:
            offset = 1.0 if path.endswith("gamma") else 0.0
            variable.assign(offset + 0.1 * generator.standard_normal(variable.shape))
    return model


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_published_parameter_counts(name: str) -> None:
    from pocketbert.checkpoints.name_maps import tensor_specs

    specs = tensor_specs(PRESETS[name].config, ())
    assert sum(int(np.prod(spec.shape)) for spec in specs.values()) == PRESETS[name].parameters


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Table 5 of EfficientBERT prints 15.3M, 15.4M, 15.4M and 15.7M, tables 2 and 4 9.4M and 16.0M.
        ("efficientbert_base", 15_338_844),
        ("efficientbert_stage1", 15_400_449),
        ("efficientbert_stage2", 15_400_449),
        ("efficientbert", 15_737_724),
        ("efficientbert_tiny", 9_375_144),
        ("efficientbert_plusplus", 15_972_264),
        ("efficientbert_plusplus_released", 14_241_864),
    ],
)
def test_efficientbert_counts_as_in_the_paper(name: str, published: int) -> None:
    width = PRESETS[name].config.hidden_size
    pooler, projection = width**2 + width, width * 768 + 768
    assert PRESETS[name].parameters - pooler + projection == published


@families
def test_weights_are_those_that_the_names_map_lists(config: EncoderConfig) -> None:
    from pocketbert.checkpoints.name_maps import tensor_specs

    model = pb.from_preset(config, task=[TaskConfig(kind="classification", labels=("a", "b", "c"))])
    specs = tensor_specs(config, model.tasks)
    shapes = {path: tuple(variable.shape) for path, variable in model.weights_by_path().items()}
    assert shapes == {path: spec.shape[::-1] if spec.transpose else spec.shape for path, spec in specs.items()}
    assert len(model.named_variables()) == len(shapes)
    assert len(model.trainable_variables) == len(shapes)


@pytest.mark.one_of_each("bert", "mobilebert")
@families
def test_features_by_name_and_by_layer_agree(config: EncoderConfig) -> None:
    model, inputs = shake(pb.from_preset(config, seed=4)), tiny.batch(config)
    if config.rotary is not None:
        # Where a window has no token, attention depends on the form of the graph.
        inputs["input_mask"] = tf.ones_like(inputs["input_mask"])
    names = ["hidden_states", "attention_logits", "attention_probs", "queries", "keys", "values"]
    every = model.features(inputs, names)
    batch, length, layers = 3, 7, config.num_layers
    assert [tuple(x.shape) for x in every["hidden_states"]] == [(batch, length, config.hidden_size)] * (layers + 1)
    heads = (batch, config.num_attention_heads, length, length)
    assert [tuple(x.shape) for x in every["attention_logits"]] == [heads] * layers
    assert [tuple(x.shape) for x in every["queries"]] == [(batch, length, config.attention_size)] * layers
    some = model.features(inputs, {"keys": (2,), "hidden_states": (3, 0), "attention_logits": (3,)})
    np.testing.assert_array_equal(some["keys"][0], every["keys"][1])
    np.testing.assert_array_equal(some["hidden_states"][0], every["hidden_states"][3])
    np.testing.assert_array_equal(some["hidden_states"][1], every["hidden_states"][0])
    np.testing.assert_array_equal(some["attention_logits"][0], every["attention_logits"][2])
    if config.rotary is not None:
        normalized = model.encoder.final_norm(every["hidden_states"][-1])
        np.testing.assert_array_equal(model(inputs)["sequence_output"], normalized)
    if config.pooler != "none":
        outputs = model(inputs)
        np.testing.assert_array_equal(outputs["sequence_output"], every["hidden_states"][-1])
        first = every["hidden_states"][-1][:, 0]
        assert outputs["pooled_output"].shape == first.shape


def test_attention_features_follow_their_definitions() -> None:
    """An independent NumPy attention, from queries and keys to probabilities."""
    config, inputs = tiny.BERT, tiny.batch(tiny.BERT)
    features = shake(pb.from_preset(config)).features(
        inputs, ["queries", "keys", "attention_logits", "attention_probs"]
    )
    mask = inputs["input_mask"].numpy()
    for q, k, logits, probs in zip(*features.values(), strict=True):
        q, k = (x.numpy().reshape(3, 7, 5, 6) for x in (q, k))
        expected = np.einsum("bqnd,bknd->bnqk", q, k) / np.sqrt(6)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=ATOL)
        exponentials = np.exp(expected - expected.max(-1, keepdims=True)) * mask[:, None, None, :]
        np.testing.assert_allclose(probs, exponentials / exponentials.sum(-1, keepdims=True), rtol=0, atol=ATOL)


def test_nothing_above_the_highest_request_is_computed() -> None:
    config = tiny.BERT.replace(num_layers=2)
    model, inputs = pb.from_preset(config), tiny.batch(config)

    def operations(request: pb.FeatureRequest) -> int:
        function = tf.function(lambda: model.features(inputs, request, training=True))
        return len(function.get_concrete_function().graph.get_operations())

    sizes = [operations({"hidden_states": (layer,)}) for layer in range(3)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    # Attention of layer 2 needs all of layer 1 and a part of layer 2.
    assert sizes[1] < operations({"attention_logits": (2,)}) < sizes[2]
    # Asking for what is computed anyway adds nothing but outputs.
    assert operations({"hidden_states": (2,), "queries": (1, 2)}) - sizes[2] <= 4


def test_bad_requests_are_refused_with_what_there_is() -> None:
    model = pb.from_preset(tiny.BERT)
    with pytest.raises(pb.UserError, match=r"unknown feature 'scores'.*queries has layers 1 to 3, received \[0, 4\]"):
        model.features(tiny.batch(tiny.BERT), {"scores": (1,), "queries": (0, 4)})
    with pytest.raises(pb.UserError, match="bare encoder"):
        model.features(tiny.batch(tiny.BERT), ["logits"])
    with pytest.raises(pb.UserError, match="input_word_ids"):
        model({"ids": tf.zeros([1, 2], tf.int32)})


@pytest.mark.one_of_each("bert", "roberta", "mobilebert")
@families
def test_padding_content_and_length_change_nothing(config: EncoderConfig) -> None:
    model = shake(pb.from_preset(config, task=[CLASSIFICATION], seed=6))
    inputs = tiny.batch(config)
    expected = model(inputs)["logits"].numpy()
    mask = inputs["input_mask"].numpy()
    garbage = dict(inputs)
    garbage["input_word_ids"] = tf.constant(np.where(mask == 1, inputs["input_word_ids"], 90), tf.int32)
    garbage["input_type_ids"] = tf.constant(np.where(mask == 1, inputs["input_type_ids"], 1), tf.int32)
    np.testing.assert_array_equal(model(garbage)["logits"], expected)
    longer = tiny.batch(config, length=11)
    np.testing.assert_allclose(model(longer)["logits"], expected, rtol=0, atol=ATOL)
    alone = {name: value[1:2, :4] for name, value in inputs.items()}
    np.testing.assert_allclose(model(alone)["logits"], expected[1:2], rtol=0, atol=ATOL)


def test_padding_stays_hidden_from_logits_of_thousands() -> None:
    """NoNorm does not bound the attention logits: -1e4 in front of padding would let it in."""
    config = tiny.MOBILEBERT
    model = shake(pb.from_preset(config, task=[CLASSIFICATION], seed=6))
    for block in model.encoder.layers_:
        block.attention.query.kernel.assign(block.attention.query.kernel * 1e7)
    inputs = tiny.batch(config)
    largest = max(np.abs(logits).max() for logits in model.features(inputs, ["attention_logits"])["attention_logits"])
    assert 1e5 < largest < 1e7
    longer = tiny.batch(config, length=11)
    probs = model.features(longer, ["attention_probs"])["attention_probs"]
    padding = longer["input_mask"].numpy()[:, None, None, :] == 0
    assert not any((np.asarray(prob) * padding).any() for prob in probs)


TRIGRAMS = pytest.mark.parametrize("name", ["mobilebert", "ib_bert"])
PRETRAINING = tuple(TaskConfig(kind=kind, dropout=0.0) for kind in ("masked_lm", "next_sentence"))


@pytest.mark.one_of_each("classification-ib_bert", "pretraining-mobilebert")
@TRIGRAMS
@pytest.mark.parametrize("tasks", [(CLASSIFICATION,), PRETRAINING], ids=["classification", "pretraining"])
def test_the_padding_row_of_trigrams_learns_nothing(name: str, tasks: tuple[TaskConfig, ...]) -> None:
    """Padding length would matter if the row that stands for padding learned something."""
    config = tiny.FAMILIES[name].replace(pad_token_id=1)
    model = shake(pb.from_preset(config, tasks))
    table = model.encoder.embeddings.word.table
    assert np.abs(table[config.pad_token_id]).max() == 0.0
    inputs = tiny.batch(config)
    # Masking may replace a word with any token.
    ids = inputs["input_word_ids"].numpy()
    ids[0, 3] = config.pad_token_id
    with tf.GradientTape() as tape:
        outputs = model({**inputs, "input_word_ids": tf.constant(ids)})
        loss = tf.add_n([tf.reduce_sum(tf.sin(output)) for output in outputs.values()])
    gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
    assert not gradient[config.pad_token_id].any()
    # What is read learns; as an output matrix all of it.
    learning = np.setdiff1d(np.arange(config.vocab_size) if tasks == PRETRAINING else ids, config.pad_token_id)
    assert np.abs(gradient[learning]).max(axis=1).min() > 0.0


@pytest.mark.one_of_each("ib_bert")
@TRIGRAMS
def test_all_other_rows_learn_as_in_any_tied_table(name: str) -> None:
    config = tiny.FAMILIES[name]
    model = shake(pb.from_preset(config, PRETRAINING))
    table = model.encoder.embeddings.word.table
    # No padding: the encoder's part of the gradient is a plain look-up's.
    inputs = {key: value[:1] for key, value in tiny.batch(config).items()}
    with tf.GradientTape(persistent=True) as tape:
        summed = tf.reduce_sum(tf.sin(model(inputs)["prediction_logits"]))
        encoded = {**model.encoder(inputs), "word_table": table}
        expected = tf.reduce_sum(tf.sin(model.heads["masked_lm"](encoded)))
    gradient, expected_gradient = (
        tf.convert_to_tensor(tape.gradient(loss, table)).numpy() for loss in (summed, expected)
    )
    assert expected_gradient[config.pad_token_id].any()
    expected_gradient[config.pad_token_id] = 0.0
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=ATOL)


@pytest.mark.one_of_each("bert", "mobilebert")
@families
def test_every_graph_form_gives_the_same_answer(config: EncoderConfig) -> None:
    plain = shake(pb.from_preset(config, task=[CLASSIFICATION], seed=8))
    inputs = tiny.batch(config)
    expected = plain(inputs)["logits"].numpy()
    for fused, first in ((False, True), (True, False), (True, True)):
        form = GraphForm(fused_projections=fused, first_token_only=first)
        other = Model(config, [CLASSIFICATION], graph=form)
        for path, variable in other.weights_by_path().items():
            variable.assign(plain.weights_by_path()[path])
        np.testing.assert_allclose(other(inputs)["logits"], expected, rtol=0, atol=ATOL)
        length = other.encoder(inputs)["sequence_output"].shape[1]
        assert length == (1 if first else 7)


@pytest.mark.one_of_each("mobilebert")
@pytest.mark.parametrize("name", ["bert", "mobilebert", "ib_bert", "roberta"])
def test_bfloat16_stays_near_float32(name: str) -> None:
    config = tiny.FAMILIES[name]
    expected = shake(pb.from_preset(config, task=[CLASSIFICATION], seed=9))(tiny.batch(config))["logits"].numpy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = shake(pb.from_preset(config, task=[CLASSIFICATION], seed=9))
        logits = model(tiny.batch(config))["logits"]
        assert model.features(tiny.batch(config), {"hidden_states": (1,)})["hidden_states"][0].dtype == tf.bfloat16
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    assert logits.dtype == tf.float32
    # bfloat16 has 8 significant bits: 2^-8 a rounding, a few dozen roundings one after another.
    atol = 2**-8 * 12 * np.abs(expected).max()
    assert 0 < np.abs(logits - expected).max() < atol


# Slow: a conversion takes seconds. Those of the exporter, in tests/pocketbert_export, run by default: SavedModel in
# test_savedmodel.py, BERT and MobileBERT as TFLite in test_export_convert.py.
@pytest.mark.slow
@pytest.mark.parametrize("name", tiny.FAMILIES)
def test_function_saved_model_and_tflite_agree(name: str, tmp_path: Path) -> None:
    config = tiny.FAMILIES[name]
    model = shake(pb.from_preset(config, task=[CLASSIFICATION], seed=10))
    inputs = {key: value[:1] for key, value in tiny.batch(config, length=9).items()}
    expected = model(inputs)["logits"].numpy()
    signature = {key: tf.TensorSpec([1, 9], tf.int32, name=key) for key in inputs}
    function = tf.function(lambda inputs: model(inputs), input_signature=[signature])
    np.testing.assert_allclose(function(inputs)["logits"], expected, rtol=0, atol=ATOL)
    tf.saved_model.save(model, str(tmp_path), signatures={"serving_default": function.get_concrete_function()})
    served = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](**inputs)
    np.testing.assert_allclose(served["logits"], expected, rtol=0, atol=ATOL)
    from ai_edge_litert.interpreter import Interpreter

    content = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path)).convert()
    runner = Interpreter(model_content=content).get_signature_runner()
    answer = runner(**{key: value.numpy() for key, value in inputs.items()})
    np.testing.assert_allclose(answer["logits"], expected, rtol=0, atol=ATOL)


def test_same_seed_same_weights_and_different_weights_differ() -> None:
    first, second, third = (pb.from_preset(tiny.BERT, seed=seed).weights_by_path() for seed in (1, 1, 2))
    for path, variable in first.items():
        np.testing.assert_array_equal(variable, second[path])
    query, key = (f"encoder.layers.0.attention.{name}.kernel" for name in ("query", "key"))
    assert np.abs(first[query] - third[query]).max() > 0.01
    assert np.abs(first[query] - first[key]).max() > 0.01


def test_dropout_keeps_the_mean_and_repeats_from_its_state() -> None:
    layer = Dropout(0.3)
    ones = tf.ones([301, 401])
    layer.generator.reset_from_seed(1)
    state = layer.generator.state.numpy()
    first = layer(ones, training=True).numpy()
    second = layer(ones, training=True).numpy()
    layer.generator.state.assign(state)
    np.testing.assert_array_equal(layer(ones, training=True), first)
    assert (first != second).any()
    share = (first > 0).mean()
    # Binomial: five standard deviations of sqrt(.3 * .7 / 120701).
    assert abs(share - 0.7) < 5 * np.sqrt(0.21 / ones.numpy().size)
    np.testing.assert_allclose(first[first > 0], 1 / 0.7, rtol=1e-4)
    # Both halves of a 32-bit draw are used, and they are independent of each other.
    zeros = (first.reshape(-1)[:-1].reshape(-1, 2) == 0).astype(float)
    assert abs(np.corrcoef(zeros.T)[0, 1]) < 5 / np.sqrt(len(zeros))
    np.testing.assert_array_equal(layer(ones, training=False), ones)


def test_training_uses_dropout_and_its_seed() -> None:
    inputs = tiny.batch(tiny.BERT)
    model = pb.from_preset(tiny.BERT, task=[CLASSIFICATION], seed=3)
    assert len(model.dropout_generators()) == 1 + 3 * 3 + 1
    draws = []
    for seed in (5, 5, 6):
        model.reset_dropout(seed)
        draws.append(model(inputs, training=True)["logits"].numpy())
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_features_in_training_use_the_heads_dropout(name: str, kind: str) -> None:
    config = tiny.FAMILIES[name].replace(num_layers=1, hidden_dropout=0.0, attention_dropout=0.0)
    labels = CLASSIFICATION.labels if kind == "classification" else ()
    model = pb.from_preset(config, [TaskConfig(kind=kind, labels=labels, dropout=0.5)], seed=3)
    inputs = tiny.batch(config)
    expected = model(inputs)["logits"].numpy()
    for training, same in ((False, True), (True, False)):
        logits = model.features(inputs, ["logits"], training=training)["logits"][0]
        assert np.array_equal(logits, expected) == same


def test_pretraining_heads_score_the_asked_positions() -> None:
    tasks = [TaskConfig(kind="masked_lm"), TaskConfig(kind="next_sentence")]
    model = shake(pb.from_preset(tiny.MOBILEBERT, task=tasks))
    inputs = tiny.batch(tiny.MOBILEBERT)
    every = model(inputs)
    positions = tf.constant([[1, 5], [0, 3], [2, 2]])
    some = model({**inputs, "masked_lm_positions": positions})
    assert every["prediction_logits"].shape == (3, 7, 97)
    expected = tf.gather(every["prediction_logits"], positions, batch_dims=1)
    np.testing.assert_allclose(some["prediction_logits"], expected, rtol=0, atol=ATOL)
    np.testing.assert_array_equal(some["seq_relationship_logits"], every["seq_relationship_logits"])
    logits = model.features(inputs, ["logits"])["logits"]
    assert [tuple(x.shape) for x in logits] == [(3, 7, 97), (3, 2)]


def test_fit_takes_plain_labels() -> None:
    inputs = tiny.batch(tiny.BERT)
    model = pb.from_preset(tiny.BERT.replace(num_layers=1), task=[CLASSIFICATION])
    model.compile(tf_keras.optimizers.Adam(1e-2), metrics={"logits": "accuracy"})
    labels = tf.constant([2, 0, 1])
    history = model.fit(inputs, labels, epochs=10, batch_size=3, verbose=0).history
    assert history["loss"][-1] < 0.2 * history["loss"][0]
    assert history["accuracy"][-1] == 1.0
    # The loss is the mean cross-entropy, here by hand.
    log_probs = np.log(tf.nn.softmax(model(inputs)["logits"]))
    by_hand = -np.mean([log_probs[row, label] for row, label in enumerate(labels)])
    assert model.evaluate(inputs, labels, verbose=0)[0] == pytest.approx(by_hand, rel=1e-5)


def test_fit_regression_is_mean_squared_error() -> None:
    inputs = tiny.batch(tiny.BERT)
    model = pb.from_preset(tiny.BERT, task=[TaskConfig(kind="regression")])
    model.compile(tf_keras.optimizers.Adam())
    labels = np.array([0.5, 4.0, 2.5], np.float32)
    by_hand = np.mean((model(inputs)["logits"].numpy() - labels) ** 2)
    assert model.evaluate(inputs, labels, verbose=0) == pytest.approx(by_hand, rel=1e-5)


def test_tasks_that_an_encoder_cannot_carry_are_refused() -> None:
    with pytest.raises(pb.UserError, match="next_sentence needs a pooler"):
        pb.from_preset(tiny.ROBERTA, task=[TaskConfig(kind="next_sentence")])
    with pytest.raises(pb.UserError, match="no preset 'bert'; the presets are bert_base_uncased"):
        pb.from_preset("bert")


def test_configurations_report_every_broken_rule_at_once() -> None:
    with pytest.raises(
        pb.UserError,
        match="num_layers must be positive; received 0.*hidden_dropout.*received 1.5.*activation must be one of gelu",
    ):
        tiny.BERT.replace(num_layers=0, hidden_dropout=1.5, activation="swish")
    with pytest.raises(pb.UserError, match="embedding_size=13 differs from hidden_size=30"):
        tiny.BERT.replace(embedding_size=13)
    with pytest.raises(pb.UserError, match="at least two labels"):
        TaskConfig(kind="classification", labels=("one",))
