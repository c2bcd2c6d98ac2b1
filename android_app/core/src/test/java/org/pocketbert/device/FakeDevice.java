package org.pocketbert.device;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.pocketbert.UserError;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Delegation;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.EngineException;

/** A fake phone. Its network takes 30 ms per call by default and gives the outputs of {@code BundleFolder}. */
class FakeDevice implements Device, Engine {
  long now;
  int calls;
  Set<Delegate> delegates = EnumSet.allOf(Delegate.class);
  Delegate opened;
  Path caches;
  final List<Path> openedCaches = new ArrayList<>();
  Delegation delegation;
  int thermalStatus;
  boolean powerSave;
  String interruption;
  RunRequest.Affinity restricted = RunRequest.Affinity.ANY;

  /** Called before each call of the network; tests override it. */
  void before(int call) {}

  long latencyUs() {
    return 30_000;
  }

  /** Called in each second of waiting. */
  void whileWaiting() {}

  @Override
  public long nanoTime() {
    return now;
  }

  @Override
  public void sleep(long milliseconds) {
    now += milliseconds * 1_000_000;
    whileWaiting();
  }

  @Override
  public Set<Delegate> delegates() {
    return delegates;
  }

  @Override
  public Path weightCaches() {
    return caches;
  }

  @Override
  public String runtime() {
    return "tflite 1.2.3";
  }

  /** Writes what XNNPACK would write at a new path; tests override it. */
  void write(Path cache) throws IOException {
    Files.write(cache, new byte[] {1, 2, 3});
  }

  @Override
  public Engine open(ByteBuffer model, String signature, int threads, Delegate delegate, Path weightCache) {
    opened = delegate;
    openedCaches.add(weightCache);
    try {
      if (weightCache != null && !Files.exists(weightCache)) {
        write(weightCache);
      }
    } catch (IOException error) {
      throw new EngineException("no space: " + error);
    }
    return this;
  }

  @Override
  public Map<String, float[]> run(Map<String, int[]> inputs) {
    before(++calls);
    now += 1000 * latencyUs();
    return Collections.singletonMap("logits", new float[] {-2, 0.5f});
  }

  @Override
  public int thermalStatus() {
    return thermalStatus;
  }

  @Override
  public Double thermalHeadroom() {
    return 0.25;
  }

  @Override
  public boolean powerSave() {
    return powerSave;
  }

  @Override
  public String interruption() {
    return interruption;
  }

  @Override
  public Integer batteryPercent() {
    return 77;
  }

  @Override
  public Boolean charging() {
    return false;
  }

  @Override
  public void restrict(RunRequest.Affinity affinity) {
    if (affinity == RunRequest.Affinity.LITTLE) {
      throw new UserError("no such processors");
    }
    restricted = affinity;
  }

  @Override
  public String runtimeName() {
    return "tflite";
  }

  @Override
  public String runtimeVersion() {
    return "1.2.3";
  }

  @Override
  public Delegation delegation() {
    return delegation;
  }

  @Override
  public void close() {}
}
