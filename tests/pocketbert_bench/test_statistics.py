from __future__ import annotations

import numpy as np
import pytest

from pocketbert_bench import statistics


def test_median_absolute_deviation_matches_definition() -> None:
    # Median 5; distances 4, 3, 0, 2, 95: median 3. A mean or a standard deviation would be far larger.
    assert statistics.median_absolute_deviation([1, 2, 5, 7, 100]) == 3


def test_interval_narrows_with_samples() -> None:
    generator = np.random.default_rng(1)
    widths = []
    for count in (20, 2000):
        samples = generator.normal(50, 4, count)
        low, high = statistics.bootstrap_median(samples)
        assert low <= np.median(samples) <= high
        widths.append(high - low)
    # The median's standard error is 1.2533·sigma/sqrt(n): 1.12 and 0.112; the interval is 2·1.96 of them wide.
    assert widths[0] == pytest.approx(4.4, rel=0.5)
    assert widths[1] == pytest.approx(0.44, rel=0.3)


def test_interval_has_nominal_coverage() -> None:
    generator = np.random.default_rng(2)
    covered = 0
    for seed in range(200):
        low, high = statistics.bootstrap_median(generator.exponential(1.0, 31), seed=seed, resamples=400)
        covered += low <= np.log(2) <= high
    # 190 expected, standard deviation 3; the percentile bootstrap of a median is a little off at 31 samples.
    assert 178 <= covered <= 199


def test_interval_is_deterministic() -> None:
    samples = np.random.default_rng(3).normal(size=37)
    assert statistics.bootstrap_median(samples, seed=4) == statistics.bootstrap_median(samples, seed=4)
    assert statistics.bootstrap_median(samples, seed=4) != statistics.bootstrap_median(samples, seed=5)


def test_resampling_many_samples_bounds_memory() -> None:
    # 2000 x 3,000,001 indices at once would be 48 GB.
    low, high = statistics.bootstrap_median(np.arange(3_000_001.0), resamples=3)
    assert low == pytest.approx(1_500_000, rel=0.01) and high == pytest.approx(1_500_000, rel=0.01)


def test_paired_ratio_removes_common_slowdown() -> None:
    generator = np.random.default_rng(5)
    slow = generator.uniform(1, 9, 41)
    ratio, (low, high) = statistics.paired_ratio(3 * slow * generator.normal(1, 0.01, 41), 4 * slow)
    assert ratio == pytest.approx(0.75, abs=0.005)
    assert 0.74 < low < ratio < high < 0.76


@pytest.mark.parametrize(
    ("samples", "peer", "message"),
    [([1, 2], [1], "as many values"), ([], [], "as many values"), ([1, 0], [1, 1], "positive")],
)
def test_pairs_that_are_none_are_refused(samples: list[float], peer: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        statistics.paired_ratio(samples, peer)


def test_round_medians_split_at_round_ends() -> None:
    assert statistics.round_medians([1, 2, 9, 4, 5, 7], [3, 1, 2]).tolist() == [2, 4, 6]
    with pytest.raises(ValueError, match="do not make up"):
        statistics.round_medians([1, 2, 3], [2, 2])
