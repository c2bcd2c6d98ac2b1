package org.pocketbert.host;

import java.nio.ByteBuffer;
import java.util.Map;
import org.pocketbert.benchmark.Platform;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.TfLiteEngine;

/** A computer with a JVM. */
final class HostPlatform implements Platform {
  @Override
  public long nanoTime() {
    return System.nanoTime();
  }

  @Override
  public Engine open(ByteBuffer model, String signature, int threads) {
    return new TfLiteEngine(model, signature, threads);
  }

  @Override
  public Map<String, Object> thermal() {
    return HostMachine.thermal();
  }
}
