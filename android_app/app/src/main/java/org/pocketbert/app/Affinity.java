package org.pocketbert.app;

import org.pocketbert.UserError;

/** The processors of the calling thread, set by {@code jni/affinity.c}. */
final class Affinity {
  private Affinity() {}

  /**
   * Restricts the calling thread and those that it will start.
   *
   * @param processors bit {@code i} for processor {@code i}
   * @throws UserError if this build has no helper, or the system refuses
   */
  static void restrict(long processors) {
    int result;
    try {
      System.loadLibrary("pocketbert_affinity");
      result = set(processors);
    } catch (UnsatisfiedLinkError error) {
      throw new UserError("affinity must be any: this build of the app cannot choose processors");
    }
    if (result != 0) {
      throw new UserError("affinity must be any: the system does not let the app choose processors (" + result + ")");
    }
  }

  /** Gives 0, or minus Linux' error number. */
  private static native int set(long processors);
}
