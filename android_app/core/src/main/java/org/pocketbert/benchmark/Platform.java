package org.pocketbert.benchmark;

import java.nio.ByteBuffer;
import java.util.Map;
import org.pocketbert.engine.Engine;

/** The services that the protocol needs from its platform. */
public interface Platform {
  /** Returns a monotonic clock in nanoseconds. */
  long nanoTime();

  /**
   * Opens a model.
   *
   * @throws org.pocketbert.engine.EngineException if it cannot be opened
   */
  Engine open(ByteBuffer model, String signature, int threads);

  /** Returns the current heat for a result file's {@code thermal_start}; null if unknown. */
  Map<String, Object> thermal();

  /**
   * Reports progress between calls, outside the timed code. The default does nothing.
   *
   * @param of the expected number of calls in this stage; 0 if unknown
   * @throws org.pocketbert.engine.EngineException to end the measurement with this message
   */
  default void progress(Stage stage, int done, int of) {}
}
