package org.pocketbert.benchmark;

/** How long to measure; the defaults are those of {@code pocketbert bench}. */
public final class Schedule {
  /** The schedule for published results. */
  public static final Schedule FULL = new Schedule(5, 1.0, 10.0, 50, 2.0, 10.0);

  final int warmUpRuns;
  final double warmUpSeconds;
  final double longestWarmUpSeconds;
  final int runs;
  final double seconds;
  final double longestSeconds;

  /**
   * A schedule.
   *
   * @param warmUpRuns fewest calls before the first recorded one
   * @param warmUpSeconds shortest warm-up
   * @param longestWarmUpSeconds the warm-up ends here even if calls are not steady yet
   * @param runs fewest recorded calls
   * @param seconds recorded calls fill at least this time, if that is more calls than {@code runs}
   * @param longestSeconds recorded calls end here even if they are fewer than {@code runs}
   */
  public Schedule(
      int warmUpRuns,
      double warmUpSeconds,
      double longestWarmUpSeconds,
      int runs,
      double seconds,
      double longestSeconds) {
    this.warmUpRuns = warmUpRuns;
    this.warmUpSeconds = warmUpSeconds;
    this.longestWarmUpSeconds = longestWarmUpSeconds;
    this.runs = runs;
    this.seconds = seconds;
    this.longestSeconds = longestSeconds;
  }
}
