"""The start of a head: the choice of its pooling, its weights, and what a user sees of both."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
import tiny_tasks
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, Ridge

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.tasks.classification import mean_vectors
from pocketbert.tasks.linear_fits import fit_linear
from pocketbert.tasks.registry import supervised_task
from pocketbert.tasks.temperature import softmax_temperature
from pocketbert.training import head_start
from pocketbert.training.head_start import fit_head
from pocketbert_runtime.json_reading import read_json

RANDOM = np.random.default_rng(11)


def _mixed(count: int, seed: int) -> Examples:
    """Sentences with two words of mood; the label says whether the moods differ, so no sum of words tells it."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        moods = random.integers(2, size=2)
        words = [*random.choice(tiny_finetuning.NEUTRAL, random.integers(2, 9))]
        for index, mood in enumerate(moods):
            words.append((tiny_finetuning.GOOD if mood else tiny_finetuning.BAD)[3 * index + random.integers(3)])
        random.shuffle(words)
        texts.append(" ".join(words))
        labels.append(int(moods[0] != moods[1]))
    return Examples(texts, None, np.array(labels, np.int32), [str(row) for row in range(count)], "made for the test")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_fit_picks_pooling_of_encoder(tmp_path: Path, pooling: str, seed: int) -> None:
    # Numbers in the names of layers affect the order of sums, and both losses are almost equal.
    tf_keras.backend.reset_uids()
    config = tiny.BERT.replace(num_layers=1, initializer_range=0.1, hidden_dropout=0.0, attention_dropout=0.0)
    directory = tiny_finetuning.write_model(tmp_path / "start", config)
    task = dataclasses.replace(tiny_finetuning.TASK, pooling="mean" if pooling == "mean" else None, dropout=0.0)
    model = pb.from_pretrained(directory, task=task, seed=seed)
    # New texts in every round, so that the network learns the rule, and not its texts.
    examples = _mixed(64_000, seed)
    inputs = {name: np.asarray(part) for name, part in model.tokenizer(examples.texts, max_length=16).items()}
    model.compile(tf_keras.optimizers.Adam(5e-3))
    # Some seeds need long to find the rule.
    for first in range(0, 64_000, 4000):
        part = {name: array[first : first + 4000] for name, array in inputs.items()}
        history = model.fit(part, examples.labels[first : first + 4000], batch_size=64, verbose=0)
        if history.history["loss"][-1] < 0.0003:
            break
    model.save_pretrained(tmp_path / "trained")
    encoder = pb.from_pretrained(tmp_path / "trained", task=tiny_finetuning.TASK)
    task, data = supervised_task(tiny_finetuning.TASK), _mixed(300, 100 + seed)
    start = fit_head(encoder, task, data, 16, ("first", "mean"), most_examples=300)
    assert start is not None
    # Training ends with almost no loss, where the other pooling can be as good: within 5 %, either is right.
    assert start.pooling == pooling or start.losses[pooling] <= 1.05 * start.losses[start.pooling]


# Equal losses: the mean is the safer choice.
@pytest.mark.parametrize(("better", "chosen"), [("first", "first"), ("mean", "mean"), (None, "mean")])
def test_smaller_loss_picks_the_pooling(
    better: str | None, chosen: str, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiny_finetuning.examples(60, 7)
    assert data.labels is not None
    noise = RANDOM.normal(size=(60, 4)).astype(np.float32)
    telling = noise + 3 * data.labels[:, np.newaxis]
    vectors = {name: telling if name == better else noise for name in ("first", "mean")}
    monkeypatch.setattr(head_start, "frozen_vectors", lambda *_: vectors)
    model, task = pb.from_pretrained(start, task=tiny_finetuning.TASK), supervised_task(tiny_finetuning.TASK)
    fitted = fit_head(model, task, data, 24, ("first", "mean"), most_examples=60)
    assert fitted is not None and fitted.pooling == chosen
    assert fitted.fit.loss == fitted.losses[chosen] == min(fitted.losses.values())
    assert (len({*fitted.losses.values()}) == 1) == (better is None)


def test_mean_ignores_padding_and_has_length_ten() -> None:
    tokens = RANDOM.normal(size=(3, 7, 5)).astype(np.float32)
    mask = np.arange(7) < np.array([[7], [2], [5]])
    vectors = mean_vectors(tokens, mask.astype(np.int32)).numpy()
    for row, real in zip(range(3), mask, strict=True):
        mean = tokens[row][real].mean(axis=0)
        np.testing.assert_allclose(vectors[row], 10 * mean / np.linalg.norm(mean), rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_fit_equals_logistic_regression(classes: int) -> None:
    features = RANDOM.normal(size=(97, 6))
    labels = (features @ RANDOM.normal(size=(6, classes))).argmax(axis=1).astype(np.int32)
    fit = fit_linear("classes", features, labels, classes, strengths=(0.1,))
    expected = LogisticRegression(C=0.1, max_iter=1000).fit(features, labels).predict_log_proba(features)
    # lbfgs stops at a gradient of 1e-4.
    np.testing.assert_allclose(log_softmax(features @ fit.kernel + fit.bias, axis=1), expected, atol=2e-3)


def test_class_without_examples_stays_unlikely() -> None:
    features, labels = RANDOM.normal(size=(60, 5)), RANDOM.integers(0, 2, 60).astype(np.int32) * 2
    fit = fit_linear("classes", features, labels, 4)
    logits = features @ fit.kernel + fit.bias
    assert set(logits.argmax(axis=1)) <= {0, 2} and np.isfinite(fit.loss)


def test_scores_start_from_ridge_regression() -> None:
    features = RANDOM.normal(size=(83, 5))
    scores = features @ RANDOM.normal(size=5) + 40
    fit = fit_linear("scores", features, scores, 1, strengths=(0.01,))
    expected = Ridge(alpha=50).fit(features, scores)
    np.testing.assert_allclose(fit.kernel[:, 0], expected.coef_, rtol=1e-5)
    assert fit.bias[0] == pytest.approx(expected.intercept_) and 0 < fit.loss < 1


def test_temperature_matches_probabilities_to_labels() -> None:
    logits = RANDOM.normal(size=(20_000, 3)) * 2
    noise = RANDOM.gumbel(size=logits.shape)
    labels = (logits + noise).argmax(axis=1)
    # The labels are drawn from the softmax of the logits, so three times the logits have a temperature of 3.
    assert softmax_temperature(3 * logits, labels) == pytest.approx(3, rel=0.03)
    assert softmax_temperature(logits[:19], labels[:19]) == 1


def _finetuned(folder: Path, data: Any, **options: Any) -> pb.FinetuneResult:
    """One step from a tiny model."""
    directory = tiny_finetuning.write_model(folder / "model")
    config = pb.FinetuneConfig(**{"epochs": 1, "max_length": 24, "contrastive_steps": 0, **options})
    return pb.finetune(directory, data, folder / "run", config=config, run=pb.RunConfig(max_steps=1))


def _mood(folder: Path, texts: list[str], labels: list[Any], **options: Any) -> pb.FinetuneResult:
    return _finetuned(folder, pb.data.from_pairs(texts, labels), **options)


@pytest.mark.usefixtures("eager")
def test_fitted_head_on_mean_is_saved_and_refused_by_transformers(tmp_path: Path) -> None:
    from transformers import AutoConfig, TFAutoModelForSequenceClassification

    examples = tiny_finetuning.examples(150, 3)
    names = [tiny_finetuning.TASK.labels[label] for label in examples.labels]
    result = _mood(tmp_path, examples.texts, names, head_pooling="mean")
    assert result.head["pooling"] == "mean" and "cross-validated" in result.head["reason"]
    model = pb.from_pretrained(result.model_directory)
    assert model.task.pooling == "mean" and model.config.pooler == "none"
    named = [method["name"] for method in result.outcome["baselines"]]
    assert named[1:] == ["logistic regression on words", "a linear model on frozen features"]
    for load in (AutoConfig.from_pretrained, TFAutoModelForSequenceClassification.from_pretrained):
        with pytest.raises(ValueError, match="pocketbert_bert"):
            load(result.model_directory)


@pytest.mark.usefixtures("eager")
def test_encoder_computes_only_the_tokens_of_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_tasks.write_tags(tmp_path / "train.conll")
    data, computed = pb.data.tagged(tmp_path / "train.conll"), []
    frozen_tokens = head_start.frozen_tokens

    def count(model: Any, task: Any, encoded: Any) -> np.ndarray:
        computed.append(int((encoded.labels >= 0).sum()))
        return frozen_tokens(model, task, encoded)

    monkeypatch.setattr(head_start, "frozen_tokens", count)
    labelled = sum(map(len, data.train.tags))
    most = labelled // 3
    for limit in (10**6, most):
        monkeypatch.setattr(head_start, "_MOST_TOKENS", limit)
        folder = tmp_path / str(limit)
        folder.mkdir()
        _finetuned(folder, data)
    longest = max(map(len, data.train.tags))
    assert computed[0] == labelled and abs(computed[1] - most) <= longest * 5 < most


@pytest.mark.usefixtures("eager")
def test_head_starts_from_so_many_examples(tmp_path: Path) -> None:
    examples, task = tiny_finetuning.examples(150, 6), supervised_task(tiny_finetuning.TASK)
    model = pb.from_pretrained(tiny_finetuning.write_model(tmp_path / "encoder"), task=tiny_finetuning.TASK)

    def kernel(data: Examples, most_examples: int) -> np.ndarray:
        start = fit_head(model, task, data, 24, ("mean",), most_examples=most_examples)
        assert start is not None
        return start.fit.kernel

    second = examples.select(np.arange(0, 150, 2))
    np.testing.assert_array_equal(kernel(examples, 75), kernel(second, 5000))
    assert not np.allclose(kernel(examples, 75), kernel(examples, 5000))
    names = [tiny_finetuning.TASK.labels[label] for label in examples.labels]
    reasons = []
    for count in (40, 5000):
        folder = tmp_path / str(count)
        folder.mkdir()
        reasons.append(_mood(folder, examples.texts, names, head_start_examples=count).head["reason"])
        recorded = read_json(folder / "run" / "run.json")
        # Runs of earlier commits had the default, and resume.
        assert ("head_start_examples" in recorded) == (count == 40)
    assert reasons[0] != reasons[1]


@pytest.mark.usefixtures("eager")
def test_random_regression_starts_at_mean_score(tmp_path: Path) -> None:
    examples = tiny_finetuning.examples(40, 4)
    scores = [3.25 + float(label) for label in examples.labels]
    data = pb.data.from_pairs(examples.texts, scores, kind="regression")
    assert data.task.kind == "regression"
    result = _finetuned(tmp_path, data, learning_rate=1e-9, head_start="random")
    bias = next(iter(result.model.heads.values())).output_projection.bias.numpy()
    assert bias == pytest.approx([np.mean(data.train.labels)], rel=1e-5)


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_calibration_keeps_decisions(tmp_path: Path) -> None:
    examples = tiny_finetuning.examples(300, 5)
    names = [tiny_finetuning.TASK.labels[label] for label in examples.labels]
    data = pb.data.from_pairs(examples.texts, names)
    folder = tmp_path / "with"
    folder.mkdir()
    plain = _finetuned(folder, data, calibrate=False)
    (tmp_path / "without").mkdir()
    result = _finetuned(tmp_path / "without", data)
    assert result.head["temperature"] != 1 == plain.head["temperature"]
    inputs = plain.model.tokenizer(examples.texts, max_length=24)
    before, after = (run.model(inputs)["logits"].numpy() for run in (plain, result))
    np.testing.assert_allclose(after * result.head["temperature"], before, rtol=1e-4, atol=1e-4)


def test_pooling_needs_a_sentence_head() -> None:
    with pytest.raises(pb.UserError, match="pooling is for classification and multi_label and regression; received"):
        TaskConfig(kind="span", pooling="mean")
