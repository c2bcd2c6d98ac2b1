package org.pocketbert.host;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Map;
import org.pocketbert.benchmark.Platform;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.TfLiteEngine;

/** A computer with a JVM. */
final class HostPlatform implements Platform {
  private final Path weightCache;

  /**
   * Creates a platform.
   *
   * @param weightCache a verified cache of the model, or null
   */
  HostPlatform(Path weightCache) {
    this.weightCache = weightCache;
  }

  @Override
  public long nanoTime() {
    return System.nanoTime();
  }

  @Override
  public Engine open(ByteBuffer model, String signature, int threads) {
    CachingDelegate delegate = weightCache == null ? null : CachingDelegate.open(threads, weightCache);
    return new TfLiteEngine(model, signature, threads, delegate);
  }

  @Override
  public Map<String, Object> thermal() {
    return HostMachine.thermal();
  }
}
