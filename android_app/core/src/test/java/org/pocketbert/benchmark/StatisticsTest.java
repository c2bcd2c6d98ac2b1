package org.pocketbert.benchmark;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import org.junit.Test;

/** By hand; equality with the Python side is tested there, on many samples. */
public class StatisticsTest {
  @Test
  public void orderStatistics() {
    double[] samples = {7, 1, 100, 5, 2};
    assertEquals(5, Statistics.median(samples), 0);
    // Distances from 5 are 2, 4, 95, 0, 3.
    assertEquals(3, Statistics.medianAbsoluteDeviation(samples), 0);
    // Rank 4·0.9 = 3.6 of 1, 2, 5, 7, 100: 7 + 0.6·93.
    assertEquals(62.8, Statistics.percentile(samples, 90), 1e-12);
    assertEquals(2.5, Statistics.median(new double[] {4, 1, 3, 2}), 0);
    assertThrows(IllegalArgumentException.class, () -> Statistics.median(new double[0]));
  }

  @Test
  public void halvesAreRoundedToEvenOnTheExactValue() {
    assertEquals(0.2, Statistics.rounded(0.25), 0);
    assertEquals(0.8, Statistics.rounded(0.75), 0);
    // 0.35 is stored as 0.34999…
    assertEquals(0.3, Statistics.rounded(0.35), 0);
  }

  @Test
  public void randomNumbersAreNumPys() {
    // numpy.random.default_rng(0).integers(0, 10, 12) and, continued, integers(0, 2**31 - 1, 3).
    NumpyRandom random = new NumpyRandom();
    int[] drawn = new int[15];
    for (int i = 0; i < drawn.length; i++) {
      drawn[i] = random.below(i < 12 ? 10 : Integer.MAX_VALUE);
    }
    assertArrayEquals(new int[] {8, 6, 5, 2, 3, 0, 0, 0, 1, 8, 6, 9, 1081530686, 1302740407, 2084654369}, drawn);
  }

  @Test
  public void oneSampleIsItsOwnInterval() {
    assertArrayEquals(new double[] {3.5, 3.5}, Statistics.bootstrapMedian(new double[] {3.5}), 0);
  }
}
