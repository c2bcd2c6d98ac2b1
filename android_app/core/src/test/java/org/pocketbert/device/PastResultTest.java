package org.pocketbert.device;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Benchmark;
import org.pocketbert.benchmark.Configuration;
import org.pocketbert.benchmark.ResultFile;
import org.pocketbert.benchmark.Schedule;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Delegation;

public class PastResultTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private void write(String name, long started, Map<String, Object> measurement) throws IOException {
    Path path = temporary.getRoot().toPath().resolve("results").resolve(name);
    Files.createDirectories(path.getParent());
    ResultFile.write(
        path, ResultFile.of("t", started, "device", new HashMap<>(), Arrays.asList(measurement), Arrays.asList()), true);
  }

  private Map<String, Object> measurement(int length) throws IOException {
    return measurement(length, new FakeDevice());
  }

  private Map<String, Object> measurement(int length, FakeDevice device) throws IOException {
    return measurement(length, device, RunRequest.Affinity.ANY);
  }

  private Map<String, Object> measurement(int length, FakeDevice device, RunRequest.Affinity affinity)
      throws IOException {
    Bundle bundle = Bundle.open(new BundleFolder(temporary.getRoot().toPath().resolve("bundle")).path);
    RunRequest request = new RunRequest("run", "bundle", length, 3, Delegate.CPU, affinity, false, 1);
    return DeviceRun.measure(device, Schedule.FULL, request, bundle, null, (state, done, of) -> {});
  }

  @Test
  public void runsWithWeightCacheAreNotComparedWithOthers() throws IOException {
    Map<String, Object> cached = measurement(7);
    cached.put("weight_cache_bytes", 3L);
    write("a.json", 1_000_000_000_000L, cached);
    write("b.json", 1_000_000_060_000L, measurement(7));
    List<PastResult> results = PastResult.all(temporary.getRoot().toPath().resolve("results"));
    assertFalse(results.get(0).isComparable(results.get(1)));
    assertTrue(results.get(1).isComparable(results.get(1)));
  }

  @Test
  public void newestResultComesFirst() throws IOException {
    write("b.json", 1_000_000_000_000L, measurement(7));
    write("a.json", 1_000_000_060_000L, measurement(7));
    write("c.json", 1_000_000_030_000L, measurement(4));
    Files.write(temporary.getRoot().toPath().resolve("results").resolve("d.json"), "{}".getBytes("US-ASCII"));
    List<PastResult> results = PastResult.all(temporary.getRoot().toPath().resolve("results"));
    assertEquals(3, results.size());
    PastResult newest = results.get(0);
    assertEquals("a.json", newest.path.getFileName().toString());
    assertEquals("2001-09-09T01:47:40+00:00", newest.created);
    assertEquals(67, newest.latencyUs.length);
    assertEquals(30_000, newest.medianUs, 0);
    assertEquals(30_000, newest.p90Us, 0);
    assertNull(newest.error);
    assertFalse(newest.isUnsteady);
    assertEquals("bundle", newest.label);
    assertTrue(newest.isComparable(results.get(2)));
    assertFalse(newest.isComparable(results.get(1)));
  }

  @Test
  public void unsteadyRunIsMarked() throws IOException {
    Map<String, Object> unsteady = measurement(7);
    unsteady.put("warmed_up", false);
    write("a.json", 0, unsteady);
    Map<String, Object> older = measurement(7);
    older.remove("warmed_up");
    write("b.json", 1000, older);
    List<PastResult> results = PastResult.all(temporary.getRoot().toPath().resolve("results"));
    assertFalse(results.get(0).isUnsteady);
    assertTrue(results.get(1).isUnsteady);
  }

  @Test
  public void otherRuntimesAreNotComparable() throws IOException {
    FakeDevice gpu = new FakeDevice();
    gpu.delegation = new Delegation("GPU", 19, 20);
    FakeDevice newer = new FakeDevice() {
      @Override
      public String runtimeVersion() {
        return "1.2.4";
      }
    };
    write("a.json", 3000, measurement(7));
    write("b.json", 2000, measurement(7, gpu));
    write("c.json", 1000, measurement(7, newer));
    write("d.json", 0, measurement(7));
    List<PastResult> results = PastResult.all(temporary.getRoot().toPath().resolve("results"));
    assertFalse(results.get(0).isComparable(results.get(1)));
    assertFalse(results.get(0).isComparable(results.get(2)));
    assertTrue(results.get(0).isComparable(results.get(3)));
    assertTrue(results.get(1).onGpu);
    assertFalse(results.get(0).onGpu);
  }

  @Test
  public void otherProcessorsAreNotComparedWith() throws IOException {
    Map<String, Object> older = measurement(7);
    older.remove("device");
    write("a.json", 3000, measurement(7));
    write("b.json", 2000, measurement(7, new FakeDevice(), RunRequest.Affinity.BIG));
    write("c.json", 1000, measurement(7, new FakeDevice(), RunRequest.Affinity.BIG));
    write("d.json", 0, older);
    List<PastResult> results = PastResult.all(temporary.getRoot().toPath().resolve("results"));
    assertFalse(results.get(0).isComparable(results.get(1)));
    assertTrue(results.get(1).isComparable(results.get(2)));
    // A file without affinity was measured on all processors.
    assertTrue(results.get(0).isComparable(results.get(3)));
  }

  private void assertNoResult(Path path) {
    UserError error = assertThrows(UserError.class, () -> PastResult.read(path));
    assertTrue(error.getMessage(), error.getMessage().contains("must be a result file"));
  }

  @Test
  public void resultWithoutDateHidesNoOther() throws IOException {
    Path folder = temporary.getRoot().toPath().resolve("results");
    write("good.json", 0, measurement(7));
    Map<String, Object> file =
        ResultFile.of("t", 0, "device", new HashMap<>(), Arrays.asList(measurement(7)), Arrays.asList());
    file.put("created", null);
    ResultFile.write(folder.resolve("bad.json"), file, true);
    assertNoResult(folder.resolve("bad.json"));
    assertEquals(1, PastResult.all(folder).size());
  }

  @Test
  public void resultHasANumberOrReason() throws IOException {
    Map<String, Object> neither = measurement(7);
    neither.put("latency_us", new double[0]);
    write("neither.json", 0, neither);
    assertNoResult(temporary.getRoot().toPath().resolve("results").resolve("neither.json"));
  }

  @Test
  public void failureHasAReason() throws IOException {
    Bundle bundle = Bundle.open(new BundleFolder(temporary.getRoot().toPath().resolve("bundle")).path);
    write("f.json", 0, Benchmark.failed(new Configuration("label", bundle, 7, 3), "it was hot"));
    PastResult failed = PastResult.read(temporary.getRoot().toPath().resolve("results").resolve("f.json"));
    assertEquals("it was hot", failed.error);
    assertArrayEquals(new double[0], failed.latencyUs, 0);
  }

  @Test
  public void invalidResultGivesAReason() throws IOException {
    assertTrue(PastResult.all(temporary.getRoot().toPath().resolve("none")).isEmpty());
    for (String text : new String[] {"", "[]", "{\"measurements\": []}", "{\"measurements\": [{\"length\": null}]}"}) {
      Path path = temporary.newFile().toPath();
      Files.write(path, text.getBytes("US-ASCII"));
      UserError error = assertThrows(text, UserError.class, () -> PastResult.read(path));
      assertTrue(error.getMessage().contains("must be a result file"));
    }
  }
}
