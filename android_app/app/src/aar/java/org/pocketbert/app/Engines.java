package org.pocketbert.app;

import android.system.Os;
import android.system.OsConstants;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;
import org.pocketbert.UserError;
import org.pocketbert.engine.ArchiveEngine;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;
import org.tensorflow.lite.TensorFlowLite;
import org.tensorflow.lite.gpu.CompatibilityList;

/** The runtime of this build of the app: TensorFlow Lite's last archive for Android, for the processor and the GPU. */
final class Engines {
  static final Set<Delegate> DELEGATES = Collections.unmodifiableSet(EnumSet.allOf(Delegate.class));

  // What the archive's libraries are linked for.
  private static final int PAGE_BYTES = 4096;

  private Engines() {}

  /**
   * Loads native libraries, which nothing else has to wait for then.
   *
   * @throws UserError if this phone cannot load them
   */
  static void load() {
    long pageBytes = Os.sysconf(OsConstants._SC_PAGESIZE);
    if (pageBytes > PAGE_BYTES) {
      throw new UserError(
          "a phone must have memory pages of " + PAGE_BYTES + " bytes for this build of the app; it has " + pageBytes
              + "; take the APK of make android, which measures the processor alone");
    }
    TensorFlowLite.init();
    // The GPU's library; whether the list has this phone decides nothing, trying does.
    new CompatibilityList().close();
  }

  /** Opens a model, as {@link org.pocketbert.device.Device#open}. */
  static Engine open(ByteBuffer model, String signature, int threads, Delegate delegate) {
    return new ArchiveEngine(new Archive(), model, signature, threads, delegate);
  }
}
