package org.pocketbert.device;

import java.nio.ByteBuffer;
import java.util.Set;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;

/** What a run needs of a phone, so that everything else can be tested without one. */
public interface Device {
  /** What {@link #thermalStatus} gives where the system does not tell. */
  int UNKNOWN = -1;

  /** A clock in nanoseconds that only goes forward. */
  long nanoTime();

  /** Waits. */
  void sleep(long milliseconds);

  /** What the runtime in this build of the app can run a network on. */
  Set<Delegate> delegates();

  /** Opens a model, as {@link org.pocketbert.benchmark.Platform#open}, to run on one of {@link #delegates}. */
  Engine open(ByteBuffer model, String signature, int threads, Delegate delegate);

  /** Android's thermal status, from 0 (none) to 6 (shutdown), or {@link #UNKNOWN}. */
  int thermalStatus();

  /** How near throttling is, 1 being there (Android 11 and later); null where the system does not tell. */
  Double thermalHeadroom();

  /** Whether the system saves power now. */
  boolean powerSave();

  /** What a person did that spoils the numbers, as a sentence; null if nothing. */
  String interruption();

  /** Charge; null where the system does not tell. */
  Integer batteryPercent();

  /** Whether power comes in; null where the system does not tell. */
  Boolean charging();

  /**
   * Restricts the calling thread, and those that it will start, to some processors.
   *
   * @param affinity a kind of processors, not {@code ANY}
   * @throws org.pocketbert.UserError if that cannot be done here
   */
  void restrict(RunRequest.Affinity affinity);
}
