"""ROSITA's arithmetic: importance by its definition, cut weights against zeroed ones, factors against NumPy's SVD."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning

import pocketbert as pb
from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import EncodedExamples, encode, plan_batches
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.presets import preset
from pocketbert.pruning.config import PruneConfig
from pocketbert.pruning.importance import Importance, kept, measure_importance, read_importance
from pocketbert.pruning.weights import factor, prune_weights

LENGTH, BATCH, EXAMPLES = 17, 5, 13
XLM_ROBERTA = tiny.ROBERTA.replace(model_type="xlm-roberta")
DISTILBERT = tiny.BERT.replace(model_type="distilbert", type_vocab_size=0, pooler="none")
FAMILIES = (tiny.BERT, tiny.ROBERTA, XLM_ROBERTA, DISTILBERT)
WHOLE = PruneConfig(layers=None, heads=None, intermediate_size=None, embedding_rank=None)


def random_importance(config: EncoderConfig) -> Importance:
    generator = np.random.default_rng(8)
    heads = generator.random([config.num_layers, config.num_attention_heads])
    return Importance(heads, generator.random([config.num_layers, config.intermediate_size]), 1)


def with_nonzero_vectors(model: pb.Model) -> pb.Model:
    """Random biases and norms, so that a forgotten or misplaced one shows."""
    generator = np.random.default_rng(5)
    for path, variable in model.weights_by_path().items():
        if variable.shape.rank == 1:
            variable.assign(generator.normal("gamma" in path, 0.3, variable.shape))
    return model


def pruned_to(model: pb.Model, sizes: PruneConfig, importance: Importance) -> tuple[pb.Model, float]:
    config = sizes.pruned(model.config)
    arrays = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    tensors, energy = prune_weights(arrays, model.config, config, importance, sizes.kept_layers(model.config))
    pruned = pb.from_preset(config, model.tasks)
    assert {path: variable.shape for path, variable in pruned.weights_by_path().items()} == {
        path: array.shape for path, array in tensors.items()
    }
    for path, variable in pruned.weights_by_path().items():
        variable.assign(tensors[path])
    return pruned, energy


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> pb.Model:
    folder = tmp_path_factory.mktemp("rosita") / "model"
    tokenizer = pb.from_pretrained(tiny_finetuning.write_model(folder)).tokenizer
    return with_nonzero_vectors(pb.from_preset(tiny.BERT, tiny_finetuning.TASK, tokenizer, seed=4))


@pytest.fixture(scope="module")
def encoded(teacher: pb.Model) -> EncodedExamples:
    return encode(tiny_finetuning.examples(EXAMPLES, seed=6), teacher.tokenizer, LENGTH)


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_importance_follows_its_definition(
    pooling: Any, teacher: pb.Model, encoded: EncodedExamples, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # One of them with the graph of users' runs.
    if pooling:
        request.getfixturevalue("eager")
    task = dataclasses.replace(tiny_finetuning.TASK, pooling=pooling)
    teacher = with_nonzero_vectors(pb.from_preset(tiny.BERT, task, teacher.tokenizer, seed=4))
    importance = measure_importance(teacher, encoded, tmp_path / "importance", batch_size=BATCH, seed=2)

    weights = teacher.named_variables()
    sums = {name: np.zeros(variable.shape) for name, variable in weights.items()}
    plan = plan_batches(encoded.lengths, batch_size=BATCH, seed=2, epoch=0)
    assert [len(rows) for rows in plan] == [5, 5, 3]
    for rows in plan:
        inputs, labels = encoded.batch(rows)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, teacher(inputs)["logits"])
            loss = tf.reduce_mean(losses)
        for name, gradient in zip(sums, tape.gradient(loss, list(weights.values())), strict=True):
            # A head on the mean of the tokens does not read the pooler.
            if gradient is not None and not isinstance(gradient, tf.IndexedSlices):
                sums[name] += np.abs(gradient.numpy())
    size, count = tiny.BERT.head_size, 0
    for layer in range(tiny.BERT.num_layers):
        # As stored, [out, in], so that the definition's rows and columns are rows and columns.
        output, first, second = (
            (np.abs(weights[name].numpy()) * sums[name]).T
            for part in ("attention.output", "intermediate", "output")
            for name in [f"bert.encoder.layer.{layer}.{part}.dense.weight"]
        )
        for head in range(tiny.BERT.num_attention_heads):
            expected = output[:, head * size : (head + 1) * size].sum()
            # float32 sums of some 200 terms of one sign.
            assert importance.heads[layer, head] == pytest.approx(expected, rel=1e-4)
        for neuron in range(tiny.BERT.intermediate_size):
            expected, count = first[neuron].sum() + second[:, neuron].sum(), count + 1
            assert importance.neurons[layer, neuron] == pytest.approx(expected, rel=1e-4)
    assert count == importance.neurons.size and importance.batches == 3


@pytest.mark.usefixtures("eager")
def test_stopped_pass_continues_bit_identically(
    teacher: pb.Model, encoded: EncodedExamples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measure_importance(teacher, encoded, tmp_path / "whole", batch_size=BATCH)
    write = Importance.write

    def write_and_stop(self: Importance, path: Path) -> None:
        write(self, path)
        if self.batches == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Importance, "write", write_and_stop)
    path = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        measure_importance(teacher, encoded, path, batch_size=BATCH, checkpoint_seconds=0)
    assert read_importance(path).batches == 2
    importance = measure_importance(teacher, encoded, path, batch_size=BATCH)
    np.testing.assert_array_equal(importance.heads, whole.heads)
    np.testing.assert_array_equal(importance.neurons, whole.neurons)
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()

    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="stopped is damaged"):
        measure_importance(teacher, encoded, path, batch_size=BATCH)


@pytest.mark.usefixtures("eager")
def test_infinite_gradients_are_refused(teacher: pb.Model, encoded: EncodedExamples, tmp_path: Path) -> None:
    bias = teacher.heads["classification"].output_projection.bias
    before = bias.numpy()
    bias.assign([np.inf, 0.0])
    try:
        with pytest.raises(TrainingFailed, match="gradients of batch 1 must be finite"):
            measure_importance(teacher, encoded, tmp_path / "importance", batch_size=BATCH)
    finally:
        bias.assign(before)


def test_highest_scores_are_kept() -> None:
    assert kept(np.array([2.0, 7.0, 2.0, 1.0, 9.0]), 3).tolist() == [0, 1, 4]
    assert kept(np.array([1.0, 1.0, 1.0]), 2).tolist() == [0, 1]


@pytest.mark.one_of_each("config0", "config4")
@pytest.mark.parametrize("config", [*FAMILIES, tiny.FACTORIZED_WORD])
def test_nothing_pruned_changes_no_bit(config: EncoderConfig) -> None:
    model = with_nonzero_vectors(pb.from_preset(config, tiny_finetuning.TASK, seed=4))
    pruned, energy = pruned_to(model, WHOLE, random_importance(config))
    assert pruned.config == config and energy == 1.0
    batch = tiny.batch(config)
    np.testing.assert_array_equal(pruned(batch)["logits"], model(batch)["logits"])


@pytest.mark.one_of_each("bert", "distilbert")
@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.model_type)
def test_pruned_equals_zeroed(config: EncoderConfig) -> None:
    model = with_nonzero_vectors(pb.from_preset(config, tiny_finetuning.TASK, seed=4))
    importance = random_importance(config)
    pruned, _ = pruned_to(model, PruneConfig(layers=2, heads=3, intermediate_size=19, embedding_rank=None), importance)
    assert (pruned.config.attention_size, pruned.config.head_size) == (18, 6)
    for layer in range(2):
        stack = model.encoder.layers_[layer]
        for scores, kernel, removed, rows in (
            (importance.heads, stack.attention.output_projection.kernel, 2, config.head_size),
            (importance.neurons, stack.feed_forwards[0].output_projection.kernel, 22, 1),
        ):
            zeroed = kernel.numpy()
            for part in np.argsort(scores[layer])[:removed]:
                zeroed[part * rows : (part + 1) * rows] = 0
            kernel.assign(zeroed)
    batch = tiny.batch(config)
    states = pruned.features(batch, {"hidden_states": (0, 1, 2)})["hidden_states"]
    expected = model.features(batch, {"hidden_states": (0, 1, 2)})["hidden_states"]
    for one, other in zip(states, expected, strict=True):
        # Sums of at most 41 terms in another order, normalized to order 1, in two layers.
        np.testing.assert_allclose(one, other, atol=2e-5)
    encoded = model.encoder.pooled(expected[-1])
    logits = model.heads["classification"].outputs(encoded, False)["logits"]
    np.testing.assert_allclose(pruned(batch)["logits"], logits, atol=5e-5)


def test_full_rank_equals_the_original(teacher: pb.Model) -> None:
    sizes = PruneConfig(layers=None, heads=None, intermediate_size=None, embedding_rank=30)
    pruned, energy = pruned_to(teacher, sizes, random_importance(tiny.BERT))
    assert energy == pytest.approx(1)
    assert pruned.count_params() == teacher.count_params() + 30 * 30
    batch = tiny.batch(tiny.BERT)
    np.testing.assert_allclose(pruned(batch)["logits"], teacher(batch)["logits"], atol=5e-5)


def test_factors_equal_numpys_decomposition() -> None:
    table = np.random.default_rng(3).normal(size=[47, 11]).astype(np.float32)
    (scaled, directions), energy = factor(table, 4)
    u, s, vt = np.linalg.svd(table.astype(np.float64), full_matrices=False)
    assert scaled.shape == (47, 4) and directions.shape == (4, 11)
    np.testing.assert_allclose(scaled @ directions, (u[:, :4] * s[:4]) @ vt[:4], atol=1e-5)
    # U·S, and not another split of the product: orthogonal columns with the singular values as norms.
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=0), s[:4], rtol=1e-5)
    np.testing.assert_allclose(directions @ directions.T, np.eye(4), atol=1e-5)
    assert energy == pytest.approx((s[:4] ** 2).sum() / (s**2).sum())


def test_defaults_make_rosita6_from_bert_base() -> None:
    # 30522·128 + 128·768 + (512 + 2)·768 + 2·768 in the embedding, six layers of 3·(768·128 + 128) + 128·768 + 768 +
    # 2·768·768 + 768 + 768 + 4·768, and a pooler of 768·768 + 768: all weights but those of the task's head.
    assert PruneConfig().pruned(preset("bert_base_uncased").config) == preset("rosita_6l_768d").config
    assert preset("rosita_6l_768d").parameters == 4_401_408 + 6 * 1_578_624 + 590_592 == 14_463_744
