package org.pocketbert.app;

import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.Set;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.tensorflowlite.global.tensorflowlite;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.TfLiteEngine;

/** The runtime of this build of the app: the JavaCPP presets' TensorFlow Lite, for the processor alone. */
final class Engines {
  static final Set<Delegate> DELEGATES = Collections.singleton(Delegate.CPU);

  private Engines() {}

  /** Loads native libraries, which nothing else has to wait for then. */
  static void load() {
    Loader.load(tensorflowlite.class);
  }

  /** Opens a model, as {@link org.pocketbert.device.Device#open}. */
  static Engine open(ByteBuffer model, String signature, int threads, Delegate delegate) {
    return new TfLiteEngine(model, signature, threads);
  }
}
