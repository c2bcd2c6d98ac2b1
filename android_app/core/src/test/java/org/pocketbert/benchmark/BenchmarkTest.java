package org.pocketbert.benchmark;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Delegation;
import org.pocketbert.engine.Engine;
import org.pocketbert.engine.EngineException;
import org.pocketbert.json.Json;

/** Tests the protocol with a fake engine and clock: each test sets the duration of a call. */
public class BenchmarkTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  /** Opening takes 3 ms, the first call 70 ms, call {@code n} the time in {@code latencyUs}. */
  private static class FakePlatform implements Platform, Engine {
    long now = 5;
    int calls;
    boolean closed;
    float[] logits = {-2, 0.5f};
    RuntimeException failure;

    String delegate = "XNNPACK";

    long latencyUs(int call) {
      return 30_000;
    }

    @Override
    public long nanoTime() {
      return now;
    }

    @Override
    public Engine open(ByteBuffer model, String signature, int threads) {
      assertEquals("length_7", signature);
      assertEquals(3, threads);
      assertEquals(11, model.remaining());
      now += 3_000_000;
      return this;
    }

    @Override
    public Map<String, float[]> run(Map<String, int[]> inputs) {
      // After the first call and the golden check comes the vocabulary's last token.
      int[] ids = calls == 2 ? new int[] {6, 1, 1, 1, 1, 1, 1} : new int[] {2, 5, 3, 1, 1, 1, 1};
      assertArrayEquals(ids, inputs.get("input_word_ids"));
      assertArrayEquals(new int[] {1, calls == 2 ? 0 : 1}, Arrays.copyOf(inputs.get("input_mask"), 2));
      if (failure != null) {
        throw failure;
      }
      now += 1000 * (calls++ == 0 ? 70_000 : latencyUs(calls));
      return Collections.singletonMap("logits", logits);
    }

    @Override
    public Map<String, Object> thermal() {
      return null;
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
      return new Delegation(delegate, 19, 20);
    }

    @Override
    public void close() {
      closed = true;
    }
  }

  private BundleFolder folder() throws IOException {
    return new BundleFolder(temporary.getRoot().toPath().resolve("bundle"));
  }

  private Map<String, Object> measure(FakePlatform platform) throws IOException {
    Configuration configuration = new Configuration("label", Bundle.open(folder().path), 7, 3);
    Map<String, Object> result = Benchmark.measure(platform, Schedule.FULL, configuration, 12_345L);
    assertTrue(platform.closed);
    return result;
  }

  private static double[] latencies(Map<String, Object> result) {
    return (double[]) result.get("latency_us");
  }

  @Test
  public void openingAndFirstCallAreSeparate() throws IOException {
    FakePlatform platform = new FakePlatform();
    Map<String, Object> result = measure(platform);
    assertEquals("ok", result.get("status"));
    assertEquals("label", result.get("label"));
    assertEquals("bundle", result.get("model"));
    assertTrue(result.containsKey("weights"));
    assertNull(result.get("weights"));
    assertEquals(3000.0, result.get("init_us"));
    assertEquals(70_000.0, result.get("first_inference_us"));
    // 30 ms a call: a second is reached in the seventh batch of 5, and 2 seconds of records in call 67.
    assertEquals(35, result.get("warm_up_runs"));
    assertEquals(true, result.get("warmed_up"));
    // The memory before the bundle was opened, not the current one.
    assertEquals(12_345L, result.get("base_memory_bytes"));
    assertTrue((Long) result.get("peak_memory_bytes") > 1_000_000);
    assertEquals(67, latencies(result).length);
    assertEquals(Arrays.asList(67), result.get("round_sizes"));
    for (double latency : latencies(result)) {
      assertEquals(30_000, latency, 0);
    }
    assertEquals(19, ((Map<?, ?>) result.get("delegate")).get("delegated_ops"));
    // First call, golden check, last token, warm-up, recorded calls, and no others.
    assertEquals(1 + 1 + 1 + 35 + 67, platform.calls);
  }

  @Test
  public void slowModelGetsFiftyRuns() throws IOException {
    FakePlatform slow = new FakePlatform() {
      @Override
      long latencyUs(int call) {
        return 150_000;
      }
    };
    assertEquals(50, latencies(measure(slow)).length);
    FakePlatform slower = new FakePlatform() {
      @Override
      long latencyUs(int call) {
        return 900_000;
      }
    };
    // The twelfth call passes 10 seconds.
    assertEquals(12, latencies(measure(slower)).length);
  }

  @Test
  public void fastModelGetsAThousandRuns() throws IOException {
    FakePlatform fast = new FakePlatform() {
      @Override
      long latencyUs(int call) {
        return 100;
      }
    };
    Map<String, Object> result = measure(fast);
    assertEquals(1000, latencies(result).length);
    // One second of calls with 0.1 ms; one more batch if rounding leaves the sum below it.
    assertEquals(10_000, (Integer) result.get("warm_up_runs"), 5);
  }

  @Test
  public void warmUpEndsWhenBatchesAgree() throws IOException {
    FakePlatform cooling = new FakePlatform() {
      @Override
      long latencyUs(int call) {
        // Each batch of 5 is a tenth faster than the one before, down to 10 ms; calls 1 to 3 came before them.
        return (long) Math.max(10_000, 40_000 * Math.pow(0.9, (call - 4) / 5));
      }
    };
    // Batch 14 takes 0.9^13·40 = 10.17 ms a call; batch 15 is at 10 ms, the first less than 5 % below the one before.
    assertEquals(75, measure(cooling).get("warm_up_runs"));
    FakePlatform restless = new FakePlatform() {
      @Override
      long latencyUs(int call) {
        return (call - 4) / 5 % 2 == 0 ? 100_000 : 200_000;
      }
    };
    // Never steady: 0.5, 1.5, 2, 3, … seconds; the fourteenth batch passes 10.
    Map<String, Object> unsteady = measure(restless);
    assertEquals(70, unsteady.get("warm_up_runs"));
    assertEquals(false, unsteady.get("warmed_up"));
    assertEquals("ok", unsteady.get("status"));
  }

  @Test
  public void resultFileHasDefaultPermissions() throws IOException {
    Path folder = temporary.getRoot().toPath();
    Path other = Files.createFile(folder.resolve("other"));
    Path path = folder.resolve("result.json");
    ResultFile.write(path, Collections.singletonMap("key", "value"), false);
    assertEquals(Files.getPosixFilePermissions(other), Files.getPosixFilePermissions(path));
  }

  @Test
  public void wrongOutputFails() throws IOException {
    // The largest recorded value is 2, so float32 may be off by 0.002.
    for (float[] wrong : new float[][] {{-2, 0.5021f}, {-2.0021f, 0.5f}, {Float.NaN, 0.5f}, {-2, 1 / 0f}}) {
      FakePlatform platform = new FakePlatform();
      platform.logits = wrong;
      Map<String, Object> result = measure(platform);
      assertEquals("failed", result.get("status"));
      assertTrue((String) result.get("error"), ((String) result.get("error")).contains("only 0.00200 is allowed"));
      assertEquals(0, latencies(result).length);
      assertEquals(2, platform.calls);
      Json.write(result);
    }
    FakePlatform close = new FakePlatform();
    close.logits = new float[] {-2.0019f, 0.5019f};
    Map<String, Object> golden = asMap(measure(close).get("golden"));
    assertEquals(0.002, (Double) golden.get("tolerance"), 1e-15);
    assertEquals(0.0019, (Double) golden.get("max_absolute_difference"), 1e-6);
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> asMap(Object value) {
    return (Map<String, Object>) value;
  }

  @Test
  public void wrongRecordedOutputsFail() throws IOException {
    // With a root mean square of 1.458, 1e-4 of it is 1.5e-4; shifted alike, the logits mean the same.
    Object[][] cases = {
      {new float[] {-2, 0.5002f}, true}, {new float[] {2, -0.5f}, true}, {new float[] {98, 100.5f}, true},
      {new float[] {-2, 0.50001f}, false},
    };
    for (Object[] each : cases) {
      BundleFolder folder = folder();
      folder.answers.put("0/outputs/logits", new BundleFolder.Answer(new int[] {1, 2}, (float[]) each[0]));
      folder.write();
      FakePlatform platform = new FakePlatform();
      Configuration configuration = new Configuration("label", Bundle.open(folder.path), 7, 3);
      Map<String, Object> result = Benchmark.measure(platform, Schedule.FULL, configuration, 12_345L);
      assertEquals(each[1].equals(true) ? "failed" : "ok", result.get("status"));
      if (each[1].equals(true)) {
        String error = (String) result.get("error");
        assertTrue(error, error.startsWith("its recorded outputs must match the float model's"));
        assertEquals(0, platform.calls);
      }
    }
  }

  @Test
  public void constantInLogitsHidesNothing() throws IOException {
    // They differ by 0.02: little compared with 100, but much after the constant is subtracted.
    BundleFolder folder = folder();
    folder.description.put("recipe", "float16");
    folder.answers.put("0/outputs/logits", new BundleFolder.Answer(new int[] {1, 2}, 100, 100.02f));
    folder.answers.put("0/exported_outputs/logits", new BundleFolder.Answer(new int[] {1, 2}, 100.02f, 100));
    folder.write();
    Configuration configuration = new Configuration("label", Bundle.open(folder.path), 7, 3);
    Map<String, Object> result = Benchmark.measure(new FakePlatform(), Schedule.FULL, configuration, 12_345L);
    assertTrue((String) result.get("error"), ((String) result.get("error")).contains("they are off by 2.00 at most"));
  }

  @Test
  public void gpuHasALargerTolerance() throws IOException {
    // 5 % of the largest recorded value, 2.
    for (float[] logits : new float[][] {{-2.09f, 0.5f}, {-2, 0.61f}}) {
      FakePlatform platform = new FakePlatform();
      platform.logits = logits;
      platform.delegate = "GPU";
      Configuration configuration = new Configuration("label", Bundle.open(folder().path), 7, 3, Delegate.GPU);
      Map<String, Object> result = Benchmark.measure(platform, Schedule.FULL, configuration, 12_345L);
      assertEquals(0.1, (Double) asMap(result.get("golden")).get("tolerance"), 1e-15);
      assertEquals(logits[0] == -2 ? "failed" : "ok", result.get("status"));
    }
  }

  @Test
  public void answersOfAnotherShapeAreFailures() throws IOException {
    FakePlatform platform = new FakePlatform();
    platform.logits = new float[3];
    assertEquals("logits must have 2 values; received 3", measure(platform).get("error"));
  }

  @Test
  public void runtimeFailureIsAResult() throws IOException {
    FakePlatform platform = new FakePlatform();
    platform.failure = new EngineException("it cannot run");
    Map<String, Object> result = measure(platform);
    assertEquals("failed", result.get("status"));
    assertEquals("it cannot run", result.get("error"));
  }

  @Test
  public void otherLengthsAreRefused() throws IOException {
    Bundle bundle = Bundle.open(folder().path);
    assertThrows(UserError.class, () -> new Configuration("label", bundle, 6, 3));
  }

  @Test
  public void resultFilesAreCompleteAndKept() throws IOException {
    Path path = temporary.getRoot().toPath().resolve("result.json");
    List<Map<String, Object>> measurements = new ArrayList<>();
    Map<String, Object> content =
        ResultFile.of("a run", 1_767_323_045_000L, "host", new HashMap<>(), measurements, Arrays.asList("a note"));
    assertEquals("2026-01-02T03:04:05+00:00", content.get("created"));
    ResultFile.write(path, content, false);
    assertThrows(FileAlreadyExistsException.class, () -> ResultFile.write(path, content, false));
    content.put("bad", Double.NaN);
    assertThrows(IllegalArgumentException.class, () -> ResultFile.write(path, content, true));
    content.remove("bad");
    assertTrue(new String(Files.readAllBytes(path), "UTF-8").startsWith("{\"schema_version\": 1"));
    assertArrayEquals(new String[] {"result.json"}, temporary.getRoot().list());
  }
}
