package org.pocketbert.benchmark;

/** What a measurement is doing. */
public enum Stage {
  /** Answering the golden examples; the first of them is timed as the first call. */
  CHECKING,
  /** Calls that are not recorded, until they are steady. */
  WARMING_UP,
  /** Recorded calls. */
  MEASURING
}
