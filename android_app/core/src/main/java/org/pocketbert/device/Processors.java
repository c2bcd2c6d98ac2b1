package org.pocketbert.device;

import java.util.Map;
import java.util.SortedMap;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.LinuxFacts;

/** A phone's processors by their highest frequencies: that is what makes one big and another little. */
public final class Processors {
  /** Where Linux shows them. */
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
   * The processors of a kind.
   *
   * @param affinity {@code BIG} or {@code LITTLE}
   * @return bit {@code i} for processor {@code i}
   * @throws UserError if the system does not tell frequencies, or all processors have the same one
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
          "affinity must be any where processors of two speeds cannot be told apart; received " + affinity.word());
    }
    return mask;
  }
}
