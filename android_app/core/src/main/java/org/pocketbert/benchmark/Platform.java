package org.pocketbert.benchmark;

import java.nio.ByteBuffer;
import java.util.Map;
import org.pocketbert.engine.Engine;

/** What the protocol needs of the place where it runs. */
public interface Platform {
  /** A clock in nanoseconds that only goes forward. */
  long nanoTime();

  /**
   * Opens a model.
   *
   * @throws org.pocketbert.engine.EngineException if that cannot be done
   */
  Engine open(ByteBuffer model, String signature, int threads);

  /** The heat now, as a result file's {@code thermal_start}; null where it cannot be read. */
  Map<String, Object> thermal();
}
