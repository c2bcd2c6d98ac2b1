"""The contrastive start: its loss, what it changes, and when a fine-tuning uses it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning

import pocketbert as pb
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.model import Model
from pocketbert.training import contrastive_start
from pocketbert.training.contrastive_start import contrastive_loss, train_contrastively

RANDOM = np.random.default_rng(5)


def _expected(vectors: np.ndarray, labels: list[int]) -> float:
    """The loss from its definition, pair by pair (SetFit, section 3.1)."""
    squares: dict[bool, list[float]] = {True: [], False: []}
    for first, second in itertools.combinations(range(len(labels)), 2):
        cosine = vectors[first] @ vectors[second] / np.linalg.norm(vectors[first]) / np.linalg.norm(vectors[second])
        equal = labels[first] == labels[second]
        squares[equal].append(float((cosine - equal) ** 2))
    return float(np.mean([np.mean(values) for values in squares.values() if values]))


@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 1], [3, 3, 3], [4, 0, 2, 1], [1, 0]])
def test_loss_equals_its_definition(labels: list[int]) -> None:
    vectors = RANDOM.normal(size=(len(labels), 7)).astype(np.float32)
    loss = float(contrastive_loss(tf.constant(vectors), tf.constant(labels)))
    # Cosines of float32 vectors are exact to some 2^-23.
    assert loss == pytest.approx(_expected(vectors, labels), abs=1e-6)


def test_loss_of_one_text_is_zero() -> None:
    assert float(contrastive_loss(tf.ones([1, 3]), tf.constant([2]))) == 0


def _model(folder: Path) -> tuple[Model, EncodedExamples]:
    folder.mkdir(exist_ok=True)
    model = pb.from_pretrained(tiny_finetuning.write_model(folder / "start"), task=tiny_finetuning.TASK)
    return model, encode(tiny_finetuning.examples(37, 2), model.tokenizer, 24, show_progress=False)


def _cosines(model: Model, encoded: EncodedExamples) -> float:
    """Mean cosine of texts with one label minus that of others."""
    inputs, labels = encoded.batch(np.arange(len(encoded)))
    outputs = model.encoder({name: tf.constant(part) for name, part in inputs.items()})["sequence_output"].numpy()
    mask = inputs["input_mask"][..., np.newaxis]
    vectors = (outputs * mask).sum(axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, equal = vectors @ vectors.T, labels[:, np.newaxis] == labels
    return float(cosines[equal].mean() - cosines[~equal].mean())


@pytest.mark.nightly
def test_texts_with_one_label_move_together(tmp_path: Path) -> None:
    model, encoded = _model(tmp_path)
    before = _cosines(model, encoded)
    weights = {path: weight.numpy() for path, weight in model.weights_by_path().items()}
    frozen = [path for path in weights if path.startswith("encoder.layers.")]
    train_contrastively(model, "mean", encoded, 100, most_per_batch=32, seed=3, frozen=frozen)
    assert _cosines(model, encoded) > before + 0.004
    changed = {path for path, weight in model.weights_by_path().items() if not np.array_equal(weight, weights[path])}
    assert changed and all(path.startswith("encoder.embeddings.") for path in changed)


@pytest.mark.usefixtures("eager")
def test_learning_rates_have_the_factors_of_the_run(tmp_path: Path) -> None:
    word, query = "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.attention.self.query.weight"
    changes = []
    for factors in ({}, {word: 3.0, query: 0.5}):
        model, encoded = _model(tmp_path / str(len(factors)))
        before = {name: weight.numpy() for name, weight in model.named_variables().items()}
        train_contrastively(model, "first", encoded, 1, most_per_batch=32, seed=3, rate_factors=factors)
        changes.append({name: weight.numpy() - before[name] for name, weight in model.named_variables().items()})
    # The first step of Adam is the rate, 1e-4; float32 weights of order 0.1 have steps of 2^-27.
    for name, change in changes[0].items():
        factor = {word: 3.0, query: 0.5}.get(name, 1.0)
        np.testing.assert_allclose(changes[1][name], factor * change, atol=1e-7, err_msg=name)
    assert np.abs(changes[0][word]).max() > 5e-5 and np.abs(changes[0][query]).max() > 5e-5


@pytest.mark.usefixtures("eager")
def test_start_repeats_to_the_bit(tmp_path: Path) -> None:
    rounds = []
    for name in ("one", "two"):
        model, encoded = _model(tmp_path / name)
        train_contrastively(model, "first", encoded, 3, most_per_batch=8, seed=7)
        rounds.append({path: weight.numpy() for path, weight in model.weights_by_path().items()})
    for path, weight in rounds[0].items():
        np.testing.assert_array_equal(weight, rounds[1][path], err_msg=path)


def _finetuned(folder: Path, count: int, kind: Any = "classification", *, pairs: bool = False, **options: Any) -> str:
    folder.mkdir(exist_ok=True)
    examples = tiny_finetuning.examples(count, 3)
    labels = [float(label) if kind == "regression" else str(label) for label in examples.labels]
    data = pb.data.from_pairs(examples.texts, labels, pairs=examples.texts if pairs else None, kind=kind)
    model = tiny_finetuning.write_model(folder / "model")
    config = pb.FinetuneConfig(epochs=1, max_length=24, **options)
    return pb.finetune(model, data, folder / "run", config=config).head["reason"]


@pytest.mark.one_of_each("31-classification-24", "250-classification-0")
@pytest.mark.parametrize(
    ("count", "kind", "steps"), [(31, "classification", 24), (250, "classification", 0), (31, "regression", 0)]
)
def test_few_labelled_texts_start_contrastively(tmp_path: Path, count: int, kind: str, steps: int) -> None:
    reason = _finetuned(tmp_path, count, kind)
    assert (f"{steps} contrastive steps" in reason) == bool(steps)


@pytest.mark.usefixtures("eager")
def test_steps_without_a_contrast_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pb.UserError, match="contrastive_steps needs classes of single texts, .* leave it out"):
        _finetuned(tmp_path, 31, pairs=True, contrastive_steps=5)
    assert not (tmp_path / "run").exists()
    assert "contrastive" not in _finetuned(tmp_path / "again", 31, pairs=True)


@pytest.mark.usefixtures("eager")
def test_frozen_encoder_keeps_the_full_rate(tmp_path: Path) -> None:
    model = pb.from_pretrained(tiny_finetuning.write_model(tmp_path / "model"))
    model.encoder.trainable = False
    examples = tiny_finetuning.examples(31, 3)
    data = pb.data.from_pairs(examples.texts, [str(label) for label in examples.labels])
    config = pb.FinetuneConfig(epochs=1, max_length=24)
    result = pb.finetune(model, data, tmp_path / "run", config=config)
    assert "contrastive" not in result.head["reason"]
    assert json.loads((tmp_path / "run/run.json").read_text())["learning_rate"] == 1e-4
    with pytest.raises(pb.UserError, match="an encoder that is trained"):
        pb.finetune(model, data, tmp_path / "other", config=dataclasses.replace(config, contrastive_steps=5))


@pytest.mark.parametrize("count", [33, 65])
def test_batches_always_hold_pairs(tmp_path: Path, count: int) -> None:
    model, _ = _model(tmp_path)
    encoded = encode(tiny_finetuning.examples(count, 2), model.tokenizer, 24, show_progress=False)
    batches = itertools.islice(contrastive_start._batches(encoded, 32, seed=1), 9)
    assert {len(labels) for _, labels in batches} == {33: {16, 17}, 65: {21, 22}}[count]
