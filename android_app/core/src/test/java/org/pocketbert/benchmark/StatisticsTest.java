package org.pocketbert.benchmark;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import org.junit.Test;

/** By hand. */
public class StatisticsTest {
  @Test
  public void orderStatistics() {
    double[] samples = {7, 1, 100, 5, 2};
    assertEquals(5, Statistics.median(samples), 0);
    // Rank 4·0.9 = 3.6 of 1, 2, 5, 7, 100: 7 + 0.6·93.
    assertEquals(62.8, Statistics.percentile(samples, 90), 1e-12);
    assertEquals(2.5, Statistics.median(new double[] {4, 1, 3, 2}), 0);
    assertThrows(IllegalArgumentException.class, () -> Statistics.median(new double[0]));
  }

  @Test
  public void halvesRoundToEven() {
    assertEquals(0.2, Statistics.rounded(0.25), 0);
    assertEquals(0.8, Statistics.rounded(0.75), 0);
    // 0.35 is stored as 0.34999…
    assertEquals(0.3, Statistics.rounded(0.35), 0);
  }
}
