package org.pocketbert.app;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Set;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.tensorflowlite.global.tensorflowlite;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.TfLiteEngine;

/** The runtime in the default build: TensorFlow Lite from the JavaCPP presets, for the CPU only. */
final class Engines {
  static final Set<Delegate> DELEGATES = Collections.singleton(Delegate.CPU);

  private Engines() {}

  /** Loads native libraries in advance, so that no measurement includes it. */
  static void load() {
    Loader.load(tensorflowlite.class);
  }

  /** Whether XNNPACK can keep packed weights in a file. */
  static boolean hasWeightCache() {
    return CachingDelegate.isAvailable();
  }

  /** Name and release. */
  static String runtime() {
    return "tflite " + tensorflowlite.TfLiteVersion().getString();
  }

  /** Opens a model, as {@link org.pocketbert.device.Device#open}. */
  static Engine open(ByteBuffer model, String signature, int threads, Delegate delegate, Path weightCache) {
    CachingDelegate xnnpack = weightCache == null ? null : CachingDelegate.open(threads, weightCache);
    return new TfLiteEngine(model, signature, threads, xnnpack);
  }
}
