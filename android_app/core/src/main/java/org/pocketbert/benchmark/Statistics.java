package org.pocketbert.benchmark;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** What raw latencies say, in the same numbers to the last digit as {@code pocketbert_bench.statistics}. */
public final class Statistics {
  private static final double CONFIDENCE = 0.95;
  private static final int RESAMPLES = 2000;

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

  /** Median distance from the median, in the samples' unit (not scaled to a normal's deviation). */
  public static double medianAbsoluteDeviation(double[] samples) {
    double median = median(samples);
    double[] distances = new double[samples.length];
    for (int i = 0; i < distances.length; i++) {
      distances[i] = Math.abs(samples[i] - median);
    }
    return median(distances);
  }

  /** The two ends of the percentile bootstrap's 95 % interval of the median; the same samples give the same interval. */
  public static double[] bootstrapMedian(double[] samples) {
    requireSamples(samples);
    NumpyRandom random = new NumpyRandom();
    double[] medians = new double[RESAMPLES];
    double[] drawn = new double[samples.length];
    for (int i = 0; i < RESAMPLES; i++) {
      for (int k = 0; k < drawn.length; k++) {
        // One value takes no random number, as in NumPy.
        drawn[k] = samples[samples.length == 1 ? 0 : random.below(samples.length)];
      }
      Arrays.sort(drawn);
      medians[i] = sortedMedian(drawn);
    }
    Arrays.sort(medians);
    double tail = 50 * (1 - CONFIDENCE);
    return new double[] {sortedPercentile(medians, tail), sortedPercentile(medians, 100 - tail)};
  }

  /**
   * The summary of a measurement in a result file.
   *
   * @param latencyUs microseconds
   */
  public static Map<String, Object> summary(double[] latencyUs) {
    double[] interval = bootstrapMedian(latencyUs);
    Map<String, Object> summary = new LinkedHashMap<>();
    summary.put("median_us", rounded(percentile(latencyUs, 50)));
    summary.put("p90_us", rounded(percentile(latencyUs, 90)));
    summary.put("p99_us", rounded(percentile(latencyUs, 99)));
    summary.put("mad_us", rounded(medianAbsoluteDeviation(latencyUs)));
    summary.put("median_interval_us", new double[] {rounded(interval[0]), rounded(interval[1])});
    return summary;
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
