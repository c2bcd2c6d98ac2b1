package org.pocketbert.bundle;

import java.util.Map;

/** Runs both files of a bundle for separate pairs, for example {@code org.pocketbert.engine.BundleEngines}. */
public interface PairNetwork extends Network {
  /**
   * Runs the head on the vectors of two texts.
   *
   * @return output name to values
   */
  Map<String, float[]> runHead(float[] first, float[] second);
}
