"""Predictors give the model's own answers, in the order of the texts."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.metrics import predictions_of
from pocketbert_export import predictors
from pocketbert_export.predictors import BundlePredictor, ModelPredictor, open_predictor

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
    answered = ModelPredictor(model).logits(TEXTS[:1])
    expected = model(dict(model.tokenizer(TEXTS[:1])), training=False)[f"{task.kind}_logits"]
    np.testing.assert_allclose(answered, expected, rtol=0, atol=1e-5)


def test_model_directory(small_model: Model, small_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Chunks and calls smaller than the texts' number: every boundary is crossed.
    monkeypatch.setattr(predictors, "TEXTS_A_CHUNK", 4)
    monkeypatch.setattr(predictors, "ROWS_A_CALL", 2)
    predictor = open_predictor(small_directory)
    assert isinstance(predictor, ModelPredictor)
    assert predictor.task == small_model.task
    # Sums in another order: 2^-24 times a few hundred additions of values near 1.
    np.testing.assert_allclose(predictor.logits(TEXTS), one_by_one(small_model, 23), atol=3e-5)


def test_pairs(small_model: Model) -> None:
    pairs = ["the cat", "sun", "a bright film", "well , well", "good", "bad"]
    predictor = ModelPredictor(small_model)
    answers = predictor.logits(TEXTS, pairs)
    np.testing.assert_allclose(answers, one_by_one(small_model, 23, pairs), atol=3e-5)
    assert np.abs(answers - predictor.logits(TEXTS)).max() > 1e-3


def test_bundle_takes_the_shortest_length(
    small_model: Model, small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = open_predictor(small_bundle)
    assert isinstance(predictor, BundlePredictor)
    used: list[tuple[int, int]] = []
    answer = BundlePredictor._answer

    def spy(self: BundlePredictor, inputs: dict[str, np.ndarray], length: int) -> np.ndarray:
        used.append((length, len(inputs["input_mask"])))
        return answer(self, inputs, length)

    monkeypatch.setattr(BundlePredictor, "_answer", spy)
    np.testing.assert_allclose(predictor.logits(TEXTS), one_by_one(small_model, 19), atol=1e-4)
    assert used == [(7, 3), (19, 3)]


def test_no_texts(small_directory: Path, small_bundle: Path) -> None:
    for path in (small_directory, small_bundle):
        assert open_predictor(path).logits([]).shape == (0, 3)


def test_regression(small_model: Model) -> None:
    task = TaskConfig(kind="regression", name="grade")
    model = networks.network(networks.bert_config(), [task], small_model.tokenizer)
    answers = ModelPredictor(model).logits(TEXTS)
    assert answers.shape == (len(TEXTS),)
    np.testing.assert_allclose(answers, one_by_one(model, 23), atol=3e-5)
    assert predictions_of(task, answers) is answers


def test_probabilities_of_large_logits() -> None:
    # softmax of (0, ln 3) is (1/4, 3/4), whatever is added to both.
    logits = np.array([[0.0, np.log(3)], [5000.0, 5000.0 + np.log(3)]])
    np.testing.assert_allclose(predictors.probabilities_of(logits), [[0.25, 0.75]] * 2, rtol=1e-9)


def test_what_cannot_predict_is_refused(tmp_path: Path, small_model: Model) -> None:
    with pytest.raises(UserError, match="bundle.json.*or config.json"):
        open_predictor(tmp_path)
    bare = networks.network(networks.bert_config(), [], small_model.tokenizer)
    with pytest.raises(UserError, match="kind classification, multi_label or regression to predict; it has none"):
        ModelPredictor(bare)
    span = networks.network(networks.bert_config(), [TaskConfig(kind="span")], small_model.tokenizer)
    with pytest.raises(UserError, match="it has span"):
        ModelPredictor(span)
    wordless = networks.network(networks.bert_config())
    with pytest.raises(UserError, match="must have a vocabulary"):
        ModelPredictor(wordless)
