package org.pocketbert.app;

import android.system.Os;
import android.system.OsConstants;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;
import org.pocketbert.UserError;
import org.pocketbert.engine.ArchiveEngine;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;
import org.tensorflow.lite.TensorFlowLite;
import org.tensorflow.lite.gpu.CompatibilityList;

/** The runtime in the GPU build: TensorFlow Lite's last Android archive, for CPU and GPU. */
final class Engines {
  static final Set<Delegate> DELEGATES = Collections.unmodifiableSet(EnumSet.allOf(Delegate.class));

  // The archive's libraries are linked for this page size.
  private static final int PAGE_BYTES = 4096;

  private Engines() {}

  /**
   * Loads native libraries in advance, so that no measurement includes it.
   *
   * @throws UserError if this phone cannot load them
   */
  static void load() {
    long pageBytes = Os.sysconf(OsConstants._SC_PAGESIZE);
    if (pageBytes > PAGE_BYTES) {
      throw new UserError(
          "this build of the app needs memory pages of " + PAGE_BYTES + " bytes; the phone has " + pageBytes
              + "; install the APK from make android, which measures on the CPU");
    }
    TensorFlowLite.init();
    // Loads the GPU's library. The list itself is not used: opening a model shows whether the GPU works.
    new CompatibilityList().close();
  }

  /** Whether XNNPACK can keep packed weights in a file: the archive's Java interface has no option for it. */
  static boolean hasWeightCache() {
    return false;
  }

  /** Name and release. */
  static String runtime() {
    return "tflite-aar " + TensorFlowLite.runtimeVersion();
  }

  /** Opens a model, as {@link org.pocketbert.device.Device#open}. */
  static Engine open(ByteBuffer model, String signature, int threads, Delegate delegate, Path weightCache) {
    return new ArchiveEngine(new Archive(), model, signature, threads, delegate);
  }
}
