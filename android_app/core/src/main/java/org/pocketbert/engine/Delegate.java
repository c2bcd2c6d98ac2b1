package org.pocketbert.engine;

import java.util.Locale;

/** What a network is asked to run on. */
public enum Delegate {
  /** The processor's cores. */
  CPU,
  /** The graphics processor, which computes in half precision. */
  GPU;

  /** As written in requests. */
  public String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
