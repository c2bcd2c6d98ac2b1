from __future__ import annotations

import numpy as np
import pytest

from pocketbert._keras import tf_keras
from pocketbert.errors import UserError
from pocketbert.training.schedules import ConstantSchedule, LinearSchedule


def test_linear_schedule_warms_up_and_decays() -> None:
    schedule = LinearSchedule(0.6, total_steps=11, warmup_steps=3)
    rates = [float(schedule(step)) for step in range(13)]
    # 3 steps up to 0.6 in thirds, 8 down in eighths, then 0: float32 rounds each to 2^-24 of itself a few times.
    expected = [0, 0.2, 0.4, 0.6, 0.525, 0.45, 0.375, 0.3, 0.225, 0.15, 0.075, 0, 0]
    np.testing.assert_allclose(rates, expected, rtol=3e-7, atol=1e-8)


def test_no_warmup_starts_at_the_peak() -> None:
    assert float(LinearSchedule(0.5, total_steps=7)(0)) == 0.5
    assert [float(ConstantSchedule(0.5)(step)) for step in (0, 5)] == [0.5, 0.5]


def test_constant_schedule() -> None:
    rates = [float(ConstantSchedule(0.6, warmup_steps=3)(step)) for step in range(6)]
    np.testing.assert_allclose(rates, [0, 0.2, 0.4, 0.6, 0.6, 0.6], rtol=3e-7)


@pytest.mark.slow  # tf-models-official takes ten seconds to import.
def test_linear_schedule_without_warmup_matches_official() -> None:
    from official.modeling.optimization.lr_schedule import LinearWarmup

    # Official's decay counts from step 0: without warm-up the two agree everywhere, and the warm-up is a line in both.
    official = tf_keras.optimizers.schedules.PolynomialDecay(0.6, decay_steps=11, end_learning_rate=0.0)
    schedule = LinearSchedule(0.6, total_steps=11)
    np.testing.assert_allclose([schedule(s) for s in range(12)], [official(s) for s in range(12)], rtol=3e-7, atol=1e-8)
    warm = LinearWarmup(0.6, warmup_steps=3, warmup_learning_rate=0.0)
    np.testing.assert_allclose(
        [ConstantSchedule(0.6, warmup_steps=3)(s) for s in range(6)], [warm(s) for s in range(6)], rtol=3e-7
    )


def test_round_trip() -> None:
    for schedule in (LinearSchedule(0.1, 9, 2), ConstantSchedule(0.1, 2)):
        copy = type(schedule).from_config(schedule.get_config())
        assert [float(copy(step)) for step in range(9)] == [float(schedule(step)) for step in range(9)]


def test_bad_arguments() -> None:
    with pytest.raises(UserError, match="peak must be positive; received 0.*total_steps must exceed warmup_steps=5"):
        LinearSchedule(0, total_steps=5, warmup_steps=5)
