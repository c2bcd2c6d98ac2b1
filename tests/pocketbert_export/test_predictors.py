"""Predictors give the model's own answers, in the order of the texts."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks import forward
from pocketbert.tasks.classification import probabilities_of
from pocketbert.tasks.predictor import model_predictor
from pocketbert_export.bundle import Bundle
from pocketbert_export.predictors import open_predictor

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
    monkeypatch.setattr(forward.ModelForward.__init__, "__defaults__", (2,))
    predictor = open_predictor(small_directory)
    assert predictor.task.config == small_model.task
    # Sums in another order: 2^-24 times a few hundred additions of values near 1.
    np.testing.assert_allclose(predictor.logits(TEXTS), one_by_one(small_model, 23), atol=3e-5)


def test_pairs(small_model: Model) -> None:
    pairs = ["the cat", "sun", "a bright film", "well , well", "good", "bad"]
    predictor = model_predictor(small_model)
    answers = predictor.logits(TEXTS, pairs)
    np.testing.assert_allclose(answers, one_by_one(small_model, 23, pairs), atol=3e-5)
    assert np.abs(answers - predictor.logits(TEXTS)).max() > 1e-3


def test_bundle_takes_the_shortest_length(
    small_model: Model, small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = open_predictor(small_bundle)
    used: list[tuple[int, int]] = []
    run = Bundle.run

    def spy(self: Bundle, inputs: dict[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        used.append((length, len(inputs["input_mask"])))
        return run(self, inputs, length)

    monkeypatch.setattr(Bundle, "run", spy)
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
    with pytest.raises(UserError, match="kind classification, multi_label, regression or span to predict; it has none"):
        model_predictor(bare)
    pretrained = networks.network(networks.bert_config(), [TaskConfig(kind="next_sentence")], small_model.tokenizer)
    with pytest.raises(UserError, match="it has next_sentence"):
        model_predictor(pretrained)
    wordless = networks.network(networks.bert_config(), [TaskConfig(kind="regression")])
    with pytest.raises(UserError, match="must have a vocabulary"):
        model_predictor(wordless)
