package org.pocketbert.app;

import org.pocketbert.UserError;

/** Sets the processors of the calling thread with {@code jni/affinity.c}. */
final class Affinity {
  private Affinity() {}

  /**
   * Restricts the calling thread and its later threads.
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

  /** Returns 0, or Linux's error number with a minus sign. */
  private static native int set(long processors);
}
