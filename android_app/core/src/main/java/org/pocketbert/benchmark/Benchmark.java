package org.pocketbert.benchmark;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.Golden;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Delegation;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.EngineException;

/**
 * Measures one configuration as {@code pocketbert bench} does: check golden outputs, time opening and first call
 * separately, warm up until steady, record raw samples.
 *
 * <p>Use a fresh process for each configuration, so that opening time and memory belong to the model.
 */
public final class Benchmark {
  // Latency is steady when the medians of two successive batches differ by less.
  private static final double STEADY = 0.05;
  private static final int WARM_UP_BATCH = 5;
  // More calls would make result files long and intervals no narrower.
  private static final int MOST_RUNS = 1000;

  private final Platform platform;
  private final Schedule schedule;
  private final Configuration configuration;
  private List<Golden> goldens;
  private final Map<String, Object> result = new LinkedHashMap<>();
  private int nextGolden;

  private Benchmark(Platform platform, Schedule schedule, Configuration configuration) {
    this.platform = platform;
    this.schedule = schedule;
    this.configuration = configuration;
  }

  /**
   * Measures.
   *
   * @param baseMemoryBytes {@link ProcessMemory#residentBytes} before the bundle was opened, which reads the whole
   *     model file into memory; null if unknown
   * @return a measurement for a result file; if outputs are wrong or the runtime fails, its status is {@code failed},
   *     with a reason and no latency
   */
  public static Map<String, Object> measure(
      Platform platform, Schedule schedule, Configuration configuration, Long baseMemoryBytes) {
    return new Benchmark(platform, schedule, configuration).run(baseMemoryBytes);
  }

  /**
   * Returns the measurement of a configuration that could not start.
   *
   * @param error one sentence
   */
  public static Map<String, Object> failed(Configuration configuration, String error) {
    Benchmark benchmark = new Benchmark(null, null, configuration);
    benchmark.describe();
    return benchmark.fail(error);
  }

  /** Returns sentences about the measurements of a bundle, for a result file. */
  public static List<String> notes(Bundle bundle) {
    return bundle.hasPairs()
        ? Collections.singletonList(
            bundle.name() + " is for separate pairs: latencies are for one text in model.tflite; a pair needs two, and "
                + "head.tflite.")
        : Collections.<String>emptyList();
  }

  private Map<String, Object> run(Long baseMemoryBytes) {
    describe();
    result.put("base_memory_bytes", baseMemoryBytes);
    result.put("thermal_start", platform.thermal());
    try {
      String problem = ModelCheck.problem(configuration.bundle);
      if (problem != null) {
        throw new EngineException(problem);
      }
      goldens = configuration.bundle.goldens(configuration.length);
      GoldenCheck check = new GoldenCheck(goldens, configuration.bundle.recipe(), configuration.delegate);
      problem = measure(check);
      if (problem != null) {
        fail(problem);
      }
    } catch (UserError | EngineException error) {
      fail(error.getMessage());
    }
    result.put("thermal_end", platform.thermal());
    return result;
  }

  /** Fills the result. Returns a reason if outputs are wrong or the requested GPU ran nothing, otherwise null. */
  private String measure(GoldenCheck check) {
    platform.progress(Stage.CHECKING, 0, goldens.size());
    long began = platform.nanoTime();
    try (Engine engine = platform.open(configuration.bundle.model(), signature(), configuration.threads)) {
      result.put("init_us", microseconds(began));
      began = platform.nanoTime();
      engine.run(goldens.get(0).inputs);
      result.put("first_inference_us", microseconds(began));
      result.put("runtime", runtime(engine));
      Delegation delegation = engine.delegation();
      result.put("delegate", delegate(delegation));
      if (configuration.delegate == Delegate.GPU && (delegation == null || !delegation.name.equals("GPU"))) {
        return "the GPU ran no operator of the model; measure with delegate cpu";
      }
      check.run(engine, goldens);
      result.put("golden", check.toJson());
      result.put("resident_memory_bytes", ProcessMemory.residentBytes());
      if (check.problem() != null) {
        return check.problem();
      }
      engine.run(configuration.bundle.lastPiece(configuration.length));
      double[] latencyUs = record(engine, expectedRuns(warmUp(engine)));
      result.put("latency_us", latencyUs);
      result.put("round_sizes", Arrays.asList(latencyUs.length));
      result.put("peak_memory_bytes", ProcessMemory.peakBytes());
      return null;
    }
  }

  /** Returns the last batch's median latency in microseconds. */
  private double warmUp(Engine engine) {
    double seconds = 0;
    double before = Double.POSITIVE_INFINITY;
    for (int runs = 0; ; ) {
      platform.progress(Stage.WARMING_UP, runs, 0);
      double[] batch = new double[WARM_UP_BATCH];
      for (int i = 0; i < batch.length; i++) {
        batch[i] = call(engine);
        seconds += batch[i] / 1e6;
      }
      runs += batch.length;
      result.put("warm_up_runs", runs);
      double median = Statistics.median(batch);
      boolean steady = Math.abs(median - before) < STEADY * before;
      boolean warmedUp = steady && runs >= schedule.warmUpRuns && seconds >= schedule.warmUpSeconds;
      result.put("warmed_up", warmedUp);
      if (warmedUp || seconds > schedule.longestWarmUpSeconds) {
        return median;
      }
      before = median;
    }
  }

  private int expectedRuns(double latencyUs) {
    double filling = Math.max(schedule.runs, schedule.seconds * 1e6 / latencyUs);
    return (int) Math.max(1, Math.min(Math.min(filling, schedule.longestSeconds * 1e6 / latencyUs), MOST_RUNS));
  }

  private double[] record(Engine engine, int expected) {
    double[] latencyUs = new double[MOST_RUNS];
    double seconds = 0;
    int runs = 0;
    while (runs < MOST_RUNS
        && seconds < schedule.longestSeconds
        && (runs < schedule.runs || seconds < schedule.seconds)) {
      // Report one more call than done: at the end, a platform may do slow work.
      platform.progress(Stage.MEASURING, runs, Math.max(runs + 1, expected));
      latencyUs[runs] = Statistics.rounded(call(engine));
      seconds += latencyUs[runs++] / 1e6;
    }
    platform.progress(Stage.MEASURING, runs, runs);
    return Arrays.copyOf(latencyUs, runs);
  }

  /** Calls the engine with the next golden example; returns the latency in microseconds. */
  private double call(Engine engine) {
    Map<String, int[]> inputs = goldens.get(nextGolden).inputs;
    nextGolden = (nextGolden + 1) % goldens.size();
    long began = platform.nanoTime();
    engine.run(inputs);
    return microseconds(began);
  }

  private double microseconds(long began) {
    return (platform.nanoTime() - began) / 1e3;
  }

  private String signature() {
    return configuration.bundle.signature(configuration.length);
  }

  /** Adds the values known before the run, with keys in the schema's order. */
  private void describe() {
    result.put("label", configuration.label);
    result.put("model", configuration.bundle.name());
    result.put("recipe", configuration.bundle.recipe());
    result.put("peer", false);
    // A bundle does not record this.
    result.put("weights", null);
    result.put("model_file", configuration.bundle.modelFile());
    result.put("model_sha256", configuration.bundle.modelSha256());
    result.put("size_bytes", configuration.bundle.model().remaining());
    result.put("signature", signature());
    result.put("length", configuration.length);
    result.put("threads", configuration.threads);
    for (String key : new String[] {"runtime", "delegate", "expected_delegates"}) {
      result.put(key, null);
    }
    result.put("status", "ok");
    for (String key : new String[] {"error", "golden", "init_us", "first_inference_us"}) {
      result.put(key, null);
    }
    result.put("warm_up_runs", 0);
    result.put("warmed_up", null);
    result.put("latency_us", new double[0]);
    result.put("round_sizes", Arrays.asList());
    for (String key :
        new String[] {
          "peak_memory_bytes",
          "base_memory_bytes",
          "resident_memory_bytes",
          "weight_cache_bytes",
          "thermal_start",
          "thermal_end"
        }) {
      result.put(key, null);
    }
  }

  private Map<String, Object> fail(String error) {
    result.put("status", "failed");
    result.put("error", error);
    result.put("latency_us", new double[0]);
    result.put("round_sizes", Arrays.asList());
    return result;
  }

  private static Map<String, Object> runtime(Engine engine) {
    Map<String, Object> runtime = new LinkedHashMap<>();
    runtime.put("name", engine.runtimeName());
    runtime.put("version", engine.runtimeVersion());
    return runtime;
  }

  private static Map<String, Object> delegate(Delegation delegation) {
    if (delegation == null) {
      return null;
    }
    Map<String, Object> delegate = new LinkedHashMap<>();
    delegate.put("name", delegation.name);
    delegate.put("delegated_ops", delegation.delegatedOps);
    delegate.put("total_ops", delegation.totalOps);
    return delegate;
  }
}
