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

  /**
   * Told between calls, outside of what is timed; a platform that nobody watches has nothing to do.
   *
   * @param of how many calls this stage takes, as far as can be said; 0 where nothing can
   * @throws org.pocketbert.engine.EngineException ends the measurement, with its message as the result
   */
  default void progress(Stage stage, int done, int of) {}
}
