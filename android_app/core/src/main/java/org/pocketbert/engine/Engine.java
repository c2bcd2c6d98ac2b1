package org.pocketbert.engine;

import java.util.Map;

/** One signature of a model, opened in one runtime. It is not thread-safe. */
public interface Engine extends AutoCloseable {
  /** The runtime's name in result files, for example {@code tflite}. */
  String runtimeName();

  /** The runtime's release. */
  String runtimeVersion();

  /** Returns the delegated part of the model's first graph; null if there is none. Call it after the first run. */
  Delegation delegation();

  /**
   * Copies the inputs, runs the network and copies the outputs. The first call also allocates.
   *
   * @param inputs name to values, for every input of the signature
   * @return name to values, for every output
   * @throws EngineException if names or sizes differ from the signature, or the runtime fails
   */
  Map<String, float[]> run(Map<String, int[]> inputs);

  @Override
  void close();
}
