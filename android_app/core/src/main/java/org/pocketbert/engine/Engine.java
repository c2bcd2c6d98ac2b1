package org.pocketbert.engine;

import java.util.Map;

/** One signature of a model, opened in one runtime. Not for several threads at once. */
public interface Engine extends AutoCloseable {
  /** The runtime's name in result files, for example {@code tflite}. */
  String runtimeName();

  /** The runtime's release. */
  String runtimeVersion();

  /** What took over how much of the model's first graph; null if nothing did. Known after the first run. */
  Delegation delegation();

  /**
   * Copies the inputs in, runs the network, copies the outputs out; the first call also allocates.
   *
   * @param inputs name to values, for every input of the signature
   * @return name to values, for every output
   * @throws EngineException if names or sizes are not the signature's, or the runtime fails
   */
  Map<String, float[]> run(Map<String, int[]> inputs);

  @Override
  void close();
}
