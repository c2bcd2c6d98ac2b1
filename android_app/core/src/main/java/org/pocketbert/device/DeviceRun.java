package org.pocketbert.device;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Benchmark;
import org.pocketbert.benchmark.Configuration;
import org.pocketbert.benchmark.LinuxFacts;
import org.pocketbert.benchmark.Platform;
import org.pocketbert.benchmark.Schedule;
import org.pocketbert.benchmark.Stage;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Golden;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.EngineException;
import org.pocketbert.engine.WeightCache;

/**
 * Measures one configuration on a phone: cools down, then runs {@link Benchmark}. The run fails with a reason if the
 * phone gets hot, saves power, or another window covers the app.
 */
public final class DeviceRun implements Platform {
  private static final int COOL_DOWN_SECONDS = 300;
  private static final int COOL_DOWN_STEP_SECONDS = 5;
  // Each look calls another process. Looking rarely keeps the network's data in the caches.
  private static final long NANOSECONDS_BETWEEN_LOOKS = 500_000_000;
  private static final String[] THERMAL_STATUS = {
    "none", "light", "moderate", "severe", "critical", "emergency", "shutdown"
  };

  private final Device device;
  private final Delegate delegate;
  private final Watcher watcher;
  private WeightCache cache;
  private long lastLook;
  private Stage lastStage;

  /** Receives progress, on the measuring thread. */
  public interface Watcher {
    /** Reports a state; see {@link StateLine#progress}. */
    void at(StateLine.State state, int done, int of);
  }

  private DeviceRun(Device device, Delegate delegate, Watcher watcher) {
    this.device = device;
    this.delegate = delegate;
    this.watcher = watcher;
  }

  /**
   * Measures on the calling thread.
   *
   * @param baseMemoryBytes see {@link Benchmark#measure}
   * @return a measurement for a result file, with its {@code device}; a disturbed one has the status {@code failed}
   * @throws UserError if the request cannot be met: the bundle lacks the length, or has several for the GPU; this build
   *     has no GPU or no weight cache; or the phone does not support the affinity
   */
  public static Map<String, Object> measure(
      Device device, Schedule schedule, RunRequest request, Bundle bundle, Long baseMemoryBytes, Watcher watcher) {
    Configuration configuration =
        new Configuration(bundle.name(), bundle, request.length, request.threads, request.delegate);
    checkDelegate(device, request.delegate, bundle);
    checkCache(device, request);
    if (request.affinity != RunRequest.Affinity.ANY) {
      device.restrict(request.affinity);
    }
    DeviceRun run = new DeviceRun(device, request.delegate, watcher);
    return run.run(schedule, configuration, request, bundle, baseMemoryBytes);
  }

  private static void checkDelegate(Device device, Delegate delegate, Bundle bundle) {
    if (!device.delegates().contains(delegate)) {
      throw new UserError(
          "delegate must be cpu in this build of the app; received " + delegate.word()
              + "; for the GPU, install the APK from make android RUNTIME=aar");
    }
    if (delegate == Delegate.GPU && bundle.lengths().length > 1) {
      throw new UserError(
          "a bundle must have one length for delegate gpu; " + bundle.name() + " has "
              + Arrays.toString(bundle.lengths()) + "; export it with one of --lengths");
    }
  }

  private static void checkCache(Device device, RunRequest request) {
    if (request.weightCache && device.weightCaches() == null) {
      throw new UserError(
          "weight_cache must be off in this build of the app; received on; install the APK from make android");
    }
    if (request.weightCache && request.delegate != Delegate.CPU) {
      throw new UserError("weight_cache must be off for delegate " + request.delegate.word() + "; received on");
    }
  }

  private Map<String, Object> run(
      Schedule schedule, Configuration configuration, RunRequest request, Bundle bundle, Long baseMemoryBytes) {
    Map<String, Object> result;
    try {
      coolDown();
      cache = request.weightCache ? prepareCache(request, bundle) : null;
      result = Benchmark.measure(this, schedule, configuration, baseMemoryBytes);
      putCache(result);
    } catch (EngineException error) {
      result = Benchmark.failed(configuration, error.getMessage());
    }
    result.put("device", conditions(request));
    return result;
  }

  private WeightCache prepareCache(RunRequest request, Bundle bundle) {
    try {
      return WeightCache.prepare(
          device.weightCaches(),
          bundle.modelSha256(),
          bundle.model().remaining(),
          device.runtime(),
          made -> {
            // One signature is enough: XNNPACK packs the weights of all.
            Golden golden = bundle.goldens(request.length).get(0);
            String signature = bundle.signature(request.length);
            try (Engine engine = device.open(bundle.model(), signature, request.threads, delegate, made)) {
              engine.run(golden.inputs);
            }
          });
    } catch (InterruptedException error) {
      throw new IllegalStateException("the measuring thread must not be interrupted", error);
    } catch (UserError error) {
      throw new EngineException(error.getMessage());
    }
  }

  /** Adds the cache's size. If this process built the cache, its memory is not that of a user's app: leave it out. */
  private void putCache(Map<String, Object> result) {
    if (cache == null) {
      return;
    }
    try {
      result.put("weight_cache_bytes", Files.size(cache.path));
    } catch (IOException error) {
      throw new EngineException("the weight cache must stay in place; received " + error.getMessage());
    }
    if (cache.isNew()) {
      for (String key : new String[] {"base_memory_bytes", "resident_memory_bytes", "peak_memory_bytes"}) {
        result.put(key, null);
      }
    }
  }

  private void coolDown() {
    for (int seconds = 0; device.thermalStatus() > 0; seconds += COOL_DOWN_STEP_SECONDS) {
      check(device.interruption());
      if (seconds >= COOL_DOWN_SECONDS) {
        throw new EngineException(
            "the phone must be cool; its thermal status was still "
                + name(device.thermalStatus()) + " after " + COOL_DOWN_SECONDS + " s; let it cool and measure again");
      }
      watcher.at(StateLine.State.COOLING, seconds, COOL_DOWN_SECONDS);
      device.sleep(1000 * COOL_DOWN_STEP_SECONDS);
    }
  }

  private void check() {
    check(device.interruption());
    check(device.powerSave() ? "power saving was on and slows processors; turn it off and measure again" : null);
    int status = device.thermalStatus();
    String hot = "the phone got hot: its thermal status became " + name(status) + "; let it cool and measure again";
    check(status > 0 ? hot : null);
  }

  private static void check(String problem) {
    if (problem != null) {
      throw new EngineException(problem);
    }
  }

  private Map<String, Object> conditions(RunRequest request) {
    Map<String, Object> conditions = new LinkedHashMap<>();
    conditions.put("affinity", request.affinity.word());
    conditions.put("processors_allowed", LinuxFacts.processorsAllowed());
    conditions.put("processors_khz", frequencies(Processors.FOLDER, "scaling_cur_freq"));
    conditions.put("processors_highest_khz", frequencies(Processors.FOLDER, "cpuinfo_max_freq"));
    conditions.put("battery_percent", device.batteryPercent());
    conditions.put("charging", device.charging());
    conditions.put("power_save", device.powerSave());
    conditions.put("thermal_headroom", device.thermalHeadroom());
    conditions.put("repeat", request.repeat);
    return conditions;
  }

  /** Processor to kHz; null if unknown. */
  static Map<String, Object> frequencies(String folder, String name) {
    Map<String, Object> frequencies = new LinkedHashMap<>();
    for (Map.Entry<Integer, Long> processor : LinuxFacts.kilohertz(folder, name).entrySet()) {
      frequencies.put(String.valueOf(processor.getKey()), processor.getValue());
    }
    return frequencies.isEmpty() ? null : frequencies;
  }

  @Override
  public long nanoTime() {
    return device.nanoTime();
  }

  @Override
  public Engine open(ByteBuffer model, String signature, int threads) {
    return device.open(model, signature, threads, delegate, cache == null ? null : cache.path);
  }

  @Override
  public Map<String, Object> thermal() {
    Map<String, Object> thermal = new LinkedHashMap<>();
    thermal.put("status", name(device.thermalStatus()));
    thermal.put("celsius", null);
    return thermal;
  }

  @Override
  public void progress(Stage stage, int done, int of) {
    boolean isFirst = stage != lastStage;
    boolean isLast = done == of;
    long now = device.nanoTime();
    if (isFirst || isLast || now - lastLook >= NANOSECONDS_BETWEEN_LOOKS) {
      check();
      watcher.at(StateLine.State.valueOf(stage.name()), done, of);
      lastStage = stage;
      lastLook = now;
    }
  }

  private static String name(int status) {
    return status >= 0 && status < THERMAL_STATUS.length ? THERMAL_STATUS[status] : "unknown";
  }
}
