package org.pocketbert.engine;

import java.util.Locale;

/** Where a network should run. */
public enum Delegate {
  /** The processor's cores. */
  CPU,
  /** The graphics processor, which computes in half precision. */
  GPU;

  /** The spelling in requests. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
