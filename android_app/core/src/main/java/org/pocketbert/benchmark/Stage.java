package org.pocketbert.benchmark;

/** The stages of a measurement. */
public enum Stage {
  /** Compares golden outputs; the first example is timed as the first call. */
  CHECKING,
  /** Runs unrecorded calls until they are steady. */
  WARMING_UP,
  /** Runs recorded calls. */
  MEASURING
}
