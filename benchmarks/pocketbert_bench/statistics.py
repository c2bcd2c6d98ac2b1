"""Statistics for results: medians, with seeded bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics over raw latencies; computed on reading, never stored.

    Attributes:
      median_us: median latency.
      p90_us: 90th percentile.
      p99_us: 99th percentile.
      mad_us: median absolute deviation, unscaled.
      median_interval_us: the median's 95 % bootstrap interval.
    """

    median_us: float
    p90_us: float
    p99_us: float
    mad_us: float
    median_interval_us: tuple[float, float]


def summarize(latency_us: Sequence[float]) -> Summary:
    """Computes statistics over raw latencies in microseconds."""
    median, p90, p99 = np.percentile(np.asarray(latency_us, dtype=np.float64), [50, 90, 99])
    return Summary(
        median_us=float(median),
        p90_us=float(p90),
        p99_us=float(p99),
        mad_us=median_absolute_deviation(latency_us),
        median_interval_us=bootstrap_median(latency_us),
    )


def median_absolute_deviation(samples: Sequence[float]) -> float:
    """Median distance from the median, in the samples' unit (not scaled to a standard deviation)."""
    values = np.asarray(samples, dtype=np.float64)
    return float(np.median(np.abs(values - np.median(values))))


def bootstrap_median(
    samples: Sequence[float] | np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Returns the median's percentile bootstrap interval at `CONFIDENCE`, in the samples' unit.

    Args:
      samples: independent observations, at least one.
      seed: seed for the resampling; equal samples and seeds give equal intervals.
      resamples: number of samples drawn with replacement.
    Raises:
      ValueError: there are no samples.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not len(values):
        raise ValueError("an interval needs at least one sample; received none")
    generator = np.random.default_rng(seed)
    # Resample in blocks: 2000 draws of 10^5 samples at once would take gigabytes.
    medians = np.empty(resamples)
    rows = max(1, 1_000_000 // len(values))
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), len(values))
        drawn = values[generator.integers(0, len(values), size=shape)]
        medians[start : start + shape[0]] = np.median(drawn, axis=1)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)


def paired_ratio(
    samples: Sequence[float], baseline: Sequence[float], seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """Returns the median over `pair_ratios`, and its bootstrap interval at `CONFIDENCE`."""
    ratios = pair_ratios(samples, baseline)
    return float(np.median(ratios)), bootstrap_median(ratios, seed=seed)


def pair_ratios(samples: Sequence[float], baseline: Sequence[float]) -> np.ndarray:
    """Computes `samples[i] / baseline[i]`, measured in direct succession, so load slows both.

    Raises:
      ValueError: the numbers of values differ, or one is not positive.
    """
    numerators, denominators = np.asarray(samples, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if numerators.shape != denominators.shape or numerators.ndim != 1 or not len(numerators):
        raise ValueError(f"pairs need as many values on both sides; received {numerators.shape}, {denominators.shape}")
    if (numerators <= 0).any() or (denominators <= 0).any():
        raise ValueError("a ratio needs positive values on both sides")
    return numerators / denominators


def round_medians(samples: Sequence[float], round_sizes: Sequence[int]) -> np.ndarray:
    """Computes each round's median in `samples`, concatenated in order.

    Args:
      samples: observations from all rounds.
      round_sizes: number of observations in each round; their sum is `len(samples)`.
    """
    values = np.asarray(samples, dtype=np.float64)
    if sum(round_sizes) != len(values) or min(round_sizes, default=0) < 1:
        raise ValueError(f"rounds of {list(round_sizes)} samples do not make up {len(values)} samples")
    return np.array([np.median(part) for part in np.split(values, np.cumsum(round_sizes)[:-1])])
