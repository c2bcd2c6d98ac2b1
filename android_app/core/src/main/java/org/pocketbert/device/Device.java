package org.pocketbert.device;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Set;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;

/** The phone as a run needs it. Tests replace it. */
public interface Device {
  /** Result of {@link #thermalStatus} if the system reports none. */
  int UNKNOWN = -1;

  /** Returns a monotonic clock in nanoseconds. */
  long nanoTime();

  /** Waits. */
  void sleep(long milliseconds);

  /** Returns where the runtime in this build of the app can run a network. */
  Set<Delegate> delegates();

  /** Returns the folder of weight caches; null if the runtime in this build of the app has none. */
  Path weightCaches();

  /** Returns name and release of the runtime. */
  String runtime();

  /**
   * Opens a model, as {@link org.pocketbert.benchmark.Platform#open}, to run on one of {@link #delegates}.
   *
   * @param weightCache a verified weight cache, or a path at which the runtime writes one; null for none
   */
  Engine open(ByteBuffer model, String signature, int threads, Delegate delegate, Path weightCache);

  /** Android's thermal status, from 0 (none) to 6 (shutdown), or {@link #UNKNOWN}. */
  int thermalStatus();

  /** Thermal headroom: 1 means throttling (Android 11 and later); null if unknown. */
  Double thermalHeadroom();

  /** Whether power saving is on. */
  boolean powerSave();

  /** Why the measurement was disturbed, for example by a person; null if it was not. */
  String interruption();

  /** The battery's charge; null if unknown. */
  Integer batteryPercent();

  /** Whether the battery is charging; null if unknown. */
  Boolean charging();

  /**
   * Restricts the calling thread and its later threads to some processors.
   *
   * @param affinity {@code BIG} or {@code LITTLE}
   * @throws org.pocketbert.UserError if this phone does not support it
   */
  void restrict(RunRequest.Affinity affinity);
}
