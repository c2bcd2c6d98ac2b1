package org.pocketbert.benchmark;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.Arrays;

/** Statistics of raw latencies, equal to those of NumPy to the last digit. */
public final class Statistics {
  private Statistics() {}

  /** The median. */
  public static double median(double[] samples) {
    return sortedMedian(sorted(samples));
  }

  /**
   * A percentile, interpolated linearly between the closest ranks, as NumPy's default does.
   *
   * @param percent from 0 to 100
   */
  public static double percentile(double[] samples, double percent) {
    return sortedPercentile(sorted(samples), percent);
  }

  /** One decimal, half to even on the exact binary value, as Python's round. */
  public static double rounded(double value) {
    return new BigDecimal(value).setScale(1, RoundingMode.HALF_EVEN).doubleValue();
  }

  private static double[] sorted(double[] samples) {
    requireSamples(samples);
    double[] sorted = samples.clone();
    Arrays.sort(sorted);
    return sorted;
  }

  private static double sortedMedian(double[] sorted) {
    int middle = sorted.length / 2;
    return sorted.length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }

  private static double sortedPercentile(double[] sorted, double percent) {
    double rank = (sorted.length - 1) * (percent / 100);
    int below = (int) Math.floor(rank);
    int above = Math.min(below + 1, sorted.length - 1);
    double part = rank - below;
    double difference = sorted[above] - sorted[below];
    // From the nearer end, as NumPy does, so that rounding is the same.
    return part >= 0.5 ? sorted[above] - difference * (1 - part) : sorted[below] + difference * part;
  }

  private static void requireSamples(double[] samples) {
    if (samples.length == 0) {
      throw new IllegalArgumentException("statistics need at least one sample; received none");
    }
  }
}
