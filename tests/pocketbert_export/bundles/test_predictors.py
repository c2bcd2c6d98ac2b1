"""Predictors give the model's own answers, in the order of the texts."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks import outputs
from pocketbert.tasks.predictor import model_predictor
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_runtime.answers.probabilities import probabilities_of

# Of 3, 12, 4, 8, 5 and, cut, 19 of 30 tokens with the special ones: the two lengths alternate.
TEXTS = [
    "dull",
    "the story begins well but ends very badly and",
    "a cat",
    "the film is not so bad",
    "sun or rain",
    "the dog " * 14,
]


def one_by_one(model: Model, max_length: int, pairs: list[str] | None = None) -> np.ndarray:
    """Each text alone, without padding."""
    rows = []
    for index, text in enumerate(TEXTS):
        inputs = model.tokenizer([text], None if pairs is None else [pairs[index]], max_length=max_length)
        rows.append(model(dict(inputs), training=False)["logits"].numpy()[0])
    return np.stack(rows)


def test_first_of_several_heads_answers(small_model: Model) -> None:
    task = small_model.task
    assert task is not None
    model = Model(small_model.config, [task, TaskConfig(kind="regression")], small_model.tokenizer, seed=4)
    answered = model_predictor(model).logits(TEXTS[:1])
    expected = model(dict(model.tokenizer(TEXTS[:1])), training=False)[f"{task.kind}_logits"]
    np.testing.assert_allclose(answered, expected, rtol=0, atol=1e-5)


def test_model_directory(small_model: Model, small_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Calls smaller than the texts' number: boundaries are crossed.
    monkeypatch.setattr(outputs.ModelForward.__init__, "__defaults__", (2, None))
    predictor = open_predictor(small_directory)
    assert predictor.task.config == small_model.task
    # Sums in another order: 2^-24 times a few hundred additions of values near 1.
    np.testing.assert_allclose(predictor.logits(TEXTS), one_by_one(small_model, 23), atol=3e-5)


@pytest.mark.parametrize("pairs", [None, ["the cat", "sun", "a bright film", "well , well", "good", "bad"]])
def test_texts_are_truncated_at_the_given_length(small_model: Model, pairs: list[str] | None) -> None:
    cut, longest = (model_predictor(small_model, max_length=length).logits(TEXTS, pairs) for length in (6, 99))
    np.testing.assert_allclose(cut, one_by_one(small_model, 6, pairs), atol=3e-5)
    np.testing.assert_allclose(longest, one_by_one(small_model, 23, pairs), atol=3e-5)
    assert np.abs(cut - longest).max() > 1e-3


def test_pairs(small_model: Model) -> None:
    pairs = ["the cat", "sun", "a bright film", "well , well", "good", "bad"]
    predictor = model_predictor(small_model)
    answers = predictor.logits(TEXTS, pairs)
    np.testing.assert_allclose(answers, one_by_one(small_model, 23, pairs), atol=3e-5)
    assert np.abs(answers - predictor.logits(TEXTS)).max() > 1e-3


def test_bundle_takes_the_shortest_length(
    small_model: Model, small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, int]] = []
    run = Bundle.run

    def spy(self: Bundle, inputs: dict[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        used.append((length, len(inputs["input_mask"])))
        return run(self, inputs, length)

    monkeypatch.setattr(Bundle, "run", spy)
    predictor = open_predictor(small_bundle)
    np.testing.assert_allclose(predictor.logits(TEXTS), one_by_one(small_model, 19), atol=1e-4)
    assert used == [(7, 3), (19, 3)]


def test_no_texts(small_directory: Path, small_bundle: Path) -> None:
    for path in (small_directory, small_bundle):
        assert open_predictor(path).logits([]).shape == (0, 3)


def test_probabilities_of_large_logits() -> None:
    # softmax of (0, ln 3) is (1/4, 3/4), whatever is added to both.
    logits = np.array([[0.0, np.log(3)], [5000.0, 5000.0 + np.log(3)]])
    np.testing.assert_allclose(probabilities_of(logits), [[0.25, 0.75]] * 2, rtol=1e-9)


def test_what_cannot_predict_is_refused(tmp_path: Path, small_model: Model) -> None:
    with pytest.raises(UserError, match="bundle.json.*or config.json"):
        open_predictor(tmp_path)
    bare = networks.network(networks.bert_config(), [], small_model.tokenizer)
    with pytest.raises(UserError, match="of kind classification, .* or several to predict; it has none"):
        model_predictor(bare)
    pretrained = networks.network(networks.bert_config(), [TaskConfig(kind="next_sentence")], small_model.tokenizer)
    with pytest.raises(UserError, match="it has next_sentence"):
        model_predictor(pretrained)
    wordless = networks.network(networks.bert_config(), [TaskConfig(kind="regression")])
    with pytest.raises(UserError, match="must have a vocabulary"):
        model_predictor(wordless)


# The last text is cut at the bundle's longest length, and whole for the model.
PAIRS = list(zip(TEXTS[:-1], ["the cat", "sun", "a bright film", "well , well", "good"], strict=True))


@pytest.mark.parametrize("inputs", [TEXTS[:-1], PAIRS], ids=["texts", "pairs"])
def test_model_and_bundle_predict_alike(inputs: list, small_model: Model, small_bundle: Path) -> None:
    answers, bundles = small_model.predict(inputs), Bundle.open(small_bundle).predict(inputs)
    pairs = [second for _, second in PAIRS] + [""] if inputs is PAIRS else None
    logits = one_by_one(small_model, 23, pairs)[: len(inputs)]
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for model, bundle, expected in zip(answers, bundles, exact, strict=True):
        assert model["label"] == bundle["label"] == networks.SENTIMENT.labels[expected.argmax()]
        for answer in (model, bundle):
            # Logits differ by 1e-4 at most (see above), probabilities by half of it; and six digits are shown.
            np.testing.assert_allclose([*answer["probabilities"].values()], expected, rtol=0, atol=6e-5)


def test_every_form_of_texts_is_predicted(small_model: Model) -> None:
    as_dicts = [{"text": first, "pair": second} for first, second in PAIRS]
    questions = [{"question": first, "context": second} for first, second in PAIRS]
    assert small_model.predict(as_dicts) == small_model.predict(questions) == small_model.predict(PAIRS)
    texts = small_model.predict(TEXTS)
    assert small_model.predict(np.array(TEXTS)) == small_model.predict(tuple(TEXTS)) == texts
    assert small_model.predict([{"text": text} for text in TEXTS]) == texts
    assert small_model.predict([]) == []
    assert small_model.predict(TEXTS[:1], top_k=1)[0]["top"][0]["label"] == texts[0]["label"]


def test_tensors_and_datasets_go_to_keras(small_model: Model) -> None:
    import tensorflow as tf

    inputs = dict(small_model.tokenizer(TEXTS, max_length=19))
    expected = small_model(inputs, training=False)["logits"]
    for data in (inputs, tf.data.Dataset.from_tensor_slices(inputs).batch(4)):
        answers = small_model.predict(data, verbose=0)["logits"]
        np.testing.assert_allclose(answers, expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("dull", "predict takes a list of texts; received one text, 'dull'; put it into a list"),
        (["dull", ("a", "b")], r"inputs must be texts, or pairs of texts; received \('a', 'b'\); pass all inputs in"),
        (["dull", 3], "inputs must be texts, or pairs of texts; received 3;"),
    ],
)
def test_other_inputs_are_refused(inputs: object, message: str, small_model: Model, small_bundle: Path) -> None:
    for network in (small_model, Bundle.open(small_bundle)):
        with pytest.raises(UserError, match=message):
            network.predict(inputs)
