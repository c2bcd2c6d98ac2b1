package org.pocketbert.device;

import java.util.Map;
import java.util.SortedMap;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.LinuxFacts;

/** Distinguishes a phone's big and little processors by their highest frequencies. */
public final class Processors {
  /** Linux's folder for processors. */
  public static final String FOLDER = "/sys/devices/system/cpu";

  private final SortedMap<Integer, Long> kilohertz;

  /**
   * Reads the processors.
   *
   * @param folder {@link #FOLDER}
   */
  public Processors(String folder) {
    kilohertz = LinuxFacts.kilohertz(folder, "cpuinfo_max_freq");
  }

  /**
   * Returns the processors of a kind.
   *
   * @param affinity {@code BIG} or {@code LITTLE}
   * @return bit {@code i} for processor {@code i}
   * @throws UserError if the frequencies are unknown or all equal
   */
  public long mask(RunRequest.Affinity affinity) {
    long slowest = Long.MAX_VALUE;
    long fastest = 0;
    for (long frequency : kilohertz.values()) {
      slowest = Math.min(slowest, frequency);
      fastest = Math.max(fastest, frequency);
    }
    long mask = 0;
    for (Map.Entry<Integer, Long> processor : kilohertz.entrySet()) {
      boolean isLittle = processor.getValue() == slowest;
      if (isLittle == (affinity == RunRequest.Affinity.LITTLE)) {
        mask |= 1L << processor.getKey();
      }
    }
    if (slowest >= fastest) {
      throw new UserError(
          "affinity must be any: this phone does not show processors of two speeds; received " + affinity.word());
    }
    return mask;
  }
}
