"""Multipliers of knowledge transfer, compared with the authors' schedule from Keras classes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.distillation.transfer_rates import TransferRates, background, layer_of


def weight(layer: int) -> str:
    return f"mobilebert.encoder.layer.{layer - 1}.attention.self.key.bias"


OUTSIDE = ("mobilebert.embeddings.word_embeddings.weight", "cls.predictions.transform.LayerNorm.weight")


@pytest.mark.parametrize("steps", [2, 7, 10_000])
def test_background_matches_the_authors_code(steps: int) -> None:
    # get_background_lr in mobilebert/distill_util.py: the lower of two polynomial decays over the phase.
    decay = tf_keras.optimizers.schedules.PolynomialDecay
    falling = decay(1.0, steps, end_learning_rate=0.9, power=0.5)
    rising = decay(0.0, steps, end_learning_rate=10.0, power=1.0)
    for step in {*range(0, steps, max(1, steps // 40)), 1, steps - 1}:
        expected = min(float(falling(step)), float(rising(step)))
        # A handful of float32 roundings of numbers up to 10.
        assert float(background(step, steps)) == pytest.approx(expected, abs=5e-6)


def test_background_matches_hand_calculation() -> None:
    rates = background(tf.constant([0, 100, 990, 2500, 6400, 10_000], tf.int64), 10_000).numpy()
    # 0.9 + 0.1·√0.75 and 0.9 + 0.1·√0.36.
    np.testing.assert_allclose(rates, [0, 0.1, 0.99, 0.986603, 0.96, 0.9], atol=1e-6)
    # The authors' way out of a phase that would be nothing but its first step.
    assert float(background(0, 1)) == 1.0


def test_names_give_the_layers() -> None:
    assert [layer_of(weight(layer)) for layer in (1, 9, 24)] == [1, 9, 24]
    assert [layer_of(name) for name in OUTSIDE] == [None, None]
    assert layer_of("adapters.projection.kernel") is None


@pytest.mark.parametrize(("lower", "below"), [(True, 0.3), (False, 0.0)])
def test_progressive_phase_trains_one_layer(lower: bool, below: float) -> None:
    # layer_wise_learning_rate in the same file: 3 times 0, 1 or 0.1 for a layer whose turn will come, is, or was.
    rates = TransferRates(first=3, last=3, steps=400, lower=lower)
    step = tf.constant(256, tf.int64)
    course = 0.96  # 0.9 + 0.1·√(1 − 0.64)
    for layer, peak in {1: below, 2: below, 3: 3.0, 4: 0.0, 24: 0.0}.items():
        assert float(rates(weight(layer), step)) == pytest.approx(peak * course, rel=1e-6)
        assert rates.trains(weight(layer)) is (peak > 0)
        assert float(rates(weight(layer), tf.constant(0, tf.int64))) == 0.0
    for name in OUTSIDE:
        assert rates(name, step) == 0.0 and not rates.trains(name)


def test_joint_phase_trains_all_layers() -> None:
    rates = TransferRates(first=1, last=24, steps=400, lower=False)
    step = tf.constant(20, tf.int64)
    assert [float(rates(weight(layer), step)) for layer in (1, 12, 24)] == pytest.approx([1.5] * 3)
    assert not any(map(rates.trains, OUTSIDE))
