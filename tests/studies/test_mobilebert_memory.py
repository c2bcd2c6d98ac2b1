"""MobileBERT's transfer saves no activations beyond those its gradient reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny

from pocketbert.configs import EncoderConfig
from studies.mobilebert import memory, saved_activations, shapes
from studies.mobilebert.shapes import Shape

B, S = 3, 11
STUDENT = tiny.MOBILEBERT.replace(attention_dropout=0.0)
TEACHER = tiny.IB_BERT.replace(attention_dropout=0.0, hidden_dropout=0.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny architectures in place of the paper's, and a rate that shows within a few steps."""
    configs = {shapes.TEACHER: TEACHER, shapes.STUDENT: STUDENT}

    def config(name: str, shape: Shape) -> EncoderConfig:
        return configs[name].replace(num_layers=shape.layers)

    def batch(shape: Shape) -> dict[str, tf.Tensor]:
        ids = np.random.default_rng(1).integers(2, STUDENT.vocab_size, [shape.batch_size, shape.length])
        arrays = {
            "input_word_ids": ids,
            "input_mask": np.ones_like(ids),
            "input_type_ids": 0 * ids,
            "masked_lm_positions": ids[:, :2] % shape.length,
            "masked_lm_labels": ids[:, 2:4],
        }
        return {name: tf.constant(array, tf.int32) for name, array in arrays.items()}

    monkeypatch.setattr(shapes, "use_threads", lambda: None)
    monkeypatch.setattr(shapes, "LEARNING_RATE", 0.003)
    monkeypatch.setattr(shapes, "config", config)
    monkeypatch.setattr(shapes, "batch", batch)


@pytest.mark.usefixtures("small")
def test_transfer_saves_only_what_gradients_need() -> None:
    """Of attention the difference of the distributions; of features that of the normalized ones, and one centred."""
    counts = {kind: _kept_of_a_layer(kind) for kind in ("passes", "transfer")}
    pairs, hidden = (B, STUDENT.num_attention_heads, S, S), (B, S, STUDENT.hidden_size)
    # The probabilities alone: softmax's gradient and the mixing's read the same array.
    assert counts["passes"][pairs] == 1
    assert counts["transfer"][pairs] == 2
    assert counts["transfer"][hidden] - counts["passes"][hidden] == 2


def test_saved_activations_by_hand() -> None:
    weight = tf.Variable(tf.ones([5, 7]))

    @tf.function(input_signature=[tf.TensorSpec([3, 5])])
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            inner = tf.tanh(x @ weight)
            # Nobody reads it.
            tf.exp(inner)
            loss = tf.reduce_sum(tf.square(tf.reshape(inner, [21])))
        return tape.gradient(loss, weight)

    # tanh's gradient and the square's read tanh's result, under two shapes; the argument does not count.
    (kept,) = saved_activations.saved_activations(step.get_concrete_function())
    assert kept.shape == (3, 7) and kept.size_bytes == 4 * 21 and "Tanh" in kept.name


def _kept_of_a_layer(kind: str) -> Counter:
    two, one = (
        Counter(each.shape for each in memory.kept(kind, Shape(layers=layers, batch_size=B, length=S)))
        for layers in (2, 1)
    )
    two.subtract(one)
    return two
