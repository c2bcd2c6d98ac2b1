package org.pocketbert.device;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;
import org.pocketbert.benchmark.Schedule;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Delegation;

/** Tests when a run on a fake phone gives a number, and when a reason. */
public class DeviceRunTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private final List<String> seen = new ArrayList<>();

  private Map<String, Object> measure(FakeDevice device, RunRequest request) throws IOException {
    Bundle bundle = Bundle.open(new BundleFolder(temporary.getRoot().toPath().resolve("bundle")).path);
    return DeviceRun.measure(
        device, Schedule.FULL, request, bundle, 12_345L, (state, done, of) -> seen.add(state + " " + done + "/" + of));
  }

  private static RunRequest request(RunRequest.Affinity affinity) {
    return new RunRequest("run", "bundle", 7, 3, Delegate.CPU, affinity, false, 2);
  }

  private static RunRequest cached(Delegate delegate) {
    return new RunRequest("run", "bundle", 7, 3, delegate, RunRequest.Affinity.ANY, true, 1);
  }

  private Map<String, Object> measure(FakeDevice device) throws IOException {
    return measure(device, request(RunRequest.Affinity.ANY));
  }

  private void assertFailed(FakeDevice device, String sentence) throws IOException {
    Map<String, Object> result = measure(device);
    assertEquals("failed", result.get("status"));
    assertTrue((String) result.get("error"), ((String) result.get("error")).contains(sentence));
    assertEquals(0, ((double[]) result.get("latency_us")).length);
    assertEquals(77, ((Map<?, ?>) result.get("device")).get("battery_percent"));
  }

  @Test
  public void weightCacheIsBuiltOnceAndOpened() throws IOException {
    FakeDevice device = new FakeDevice();
    device.caches = temporary.getRoot().toPath().resolve("caches");
    Map<String, Object> first = measure(device, cached(Delegate.CPU));
    assertEquals("ok", first.get("status"));
    assertEquals(3L, first.get("weight_cache_bytes"));
    // The process that packs the weights tells nothing about the memory of an app with a cache.
    assertNull(first.get("base_memory_bytes"));
    assertNull(first.get("resident_memory_bytes"));
    assertEquals(2, device.openedCaches.size());
    Path cache = device.openedCaches.get(1);
    assertNotEquals(cache, device.openedCaches.get(0));
    assertTrue(Files.isRegularFile(cache));
    Map<String, Object> second = measure(device, cached(Delegate.CPU));
    assertEquals(12_345L, second.get("base_memory_bytes"));
    assertEquals(3L, second.get("weight_cache_bytes"));
    assertEquals(Arrays.asList(cache), device.openedCaches.subList(2, device.openedCaches.size()));
    assertNull(measure(device).get("weight_cache_bytes"));
    assertNull(device.openedCaches.get(3));
  }

  @Test
  public void aChangedWeightCacheIsNotOpened() throws IOException {
    FakeDevice device = new FakeDevice();
    device.caches = temporary.getRoot().toPath().resolve("caches");
    measure(device, cached(Delegate.CPU));
    Path cache = device.openedCaches.get(1);
    Files.write(cache, new byte[] {1, 2, 4});
    measure(device, cached(Delegate.CPU));
    assertNotEquals(cache, device.openedCaches.get(2));
    assertEquals(cache, device.openedCaches.get(3));
    assertArrayEquals(new byte[] {1, 2, 3}, Files.readAllBytes(cache));
  }

  @Test
  public void weightCacheThatCannotBeWrittenFailsTheRun() throws IOException {
    FakeDevice device =
        new FakeDevice() {
          @Override
          void write(Path cache) {
            // As on a full disk.
          }
        };
    device.caches = temporary.getRoot().toPath().resolve("caches");
    Map<String, Object> result = measure(device, cached(Delegate.CPU));
    assertEquals("failed", result.get("status"));
    assertTrue((String) result.get("error"), ((String) result.get("error")).contains("must write a weight cache"));
    assertEquals(0, device.calls - 1);
  }

  @Test
  public void weightCacheNeedsABuildWithIt() throws IOException {
    UserError error = assertThrows(UserError.class, () -> measure(new FakeDevice(), cached(Delegate.CPU)));
    assertTrue(error.getMessage(), error.getMessage().contains("weight_cache must be off in this build of the app"));
  }

  @Test
  public void coolPhoneIsMeasured() throws IOException {
    FakeDevice device = new FakeDevice();
    Map<String, Object> result = measure(device, request(RunRequest.Affinity.BIG));
    assertEquals("ok", result.get("status"));
    assertEquals(RunRequest.Affinity.BIG, device.restricted);
    Map<?, ?> conditions = (Map<?, ?>) result.get("device");
    assertEquals("big", conditions.get("affinity"));
    assertEquals(2, conditions.get("repeat"));
    assertEquals(0.25, conditions.get("thermal_headroom"));
    assertTrue(((String) conditions.get("processors_allowed")).matches("[0-9,-]+"));
    assertEquals("none", ((Map<?, ?>) result.get("thermal_end")).get("status"));
    assertEquals(12_345L, result.get("base_memory_bytes"));
    assertEquals(Delegate.CPU, device.opened);
    // 2 seconds with calls of 30 ms: the 67th passes them; 66.7 are expected.
    assertEquals("CHECKING 0/1", seen.get(0));
    assertEquals("WARMING_UP 0/0", seen.get(1));
    assertEquals("MEASURING 67/67", seen.get(seen.size() - 1));
    assertTrue(seen.toString(), seen.contains("MEASURING 0/66"));
    // Every half second: looking at every call would disturb the measurement.
    assertTrue(seen.size() + "", seen.size() < 14);
  }

  @Test
  public void extraCallsAreNotDisturbed() throws IOException {
    FakeDevice faster = new FakeDevice() {
      @Override
      long latencyUs() {
        return seen.get(seen.size() - 1).startsWith("MEASURING") ? 8_000 : 10_000;
      }
    };
    Map<String, Object> result = measure(faster);
    // 2 seconds with calls of 8 ms; from calls of 10 ms, 200 are expected.
    assertEquals(250, ((double[]) result.get("latency_us")).length);
    seen.removeIf(line -> !line.startsWith("MEASURING"));
    // Half a second ends after 63 calls.
    assertEquals(
        Arrays.asList(
            "MEASURING 0/200", "MEASURING 63/200", "MEASURING 126/200", "MEASURING 189/200", "MEASURING 250/250"),
        seen);
  }

  @Test
  public void aHotPhoneCoolsDownFirst() throws IOException {
    FakeDevice device = new FakeDevice() {
      @Override
      void whileWaiting() {
        thermalStatus = now > 9e9 ? 0 : 1;
      }
    };
    device.thermalStatus = 2;
    assertEquals("ok", measure(device).get("status"));
    assertEquals(Arrays.asList("COOLING 0/300", "COOLING 5/300", "CHECKING 0/1"), seen.subList(0, 3));
  }

  @Test
  public void hotPhoneIsNotMeasured() throws IOException {
    FakeDevice device = new FakeDevice();
    device.thermalStatus = 3;
    assertFailed(device, "still severe after 300 s");
    assertEquals(0, device.calls);
    assertEquals(60, new LinkedHashSet<>(seen).size());
  }

  @Test
  public void gettingHotSpoilsARun() throws IOException {
    assertFailed(
        new FakeDevice() {
          @Override
          void before(int call) {
            thermalStatus = call > 60 ? 1 : 0;
          }
        },
        "thermal status became light");
  }

  @Test
  public void heatInTheLastCallFails() throws IOException {
    assertFailed(
        new FakeDevice() {
          @Override
          void before(int call) {
            // First call, golden check, last token, 35 to warm up, 67 recorded.
            thermalStatus = call == 1 + 1 + 1 + 35 + 67 ? 1 : 0;
          }
        },
        "thermal status became light");
  }

  @Test
  public void phoneWithoutThermalStatusIsMeasured() throws IOException {
    FakeDevice device = new FakeDevice();
    device.thermalStatus = Device.UNKNOWN;
    Map<String, Object> result = measure(device);
    assertEquals("ok", result.get("status"));
    assertEquals("unknown", ((Map<?, ?>) result.get("thermal_start")).get("status"));
  }

  @Test
  public void savingPowerSpoilsARun() throws IOException {
    FakeDevice device = new FakeDevice();
    device.powerSave = true;
    assertFailed(device, "power saving was on");
    assertEquals(0, device.calls);
    assertFailed(
        new FakeDevice() {
          @Override
          void before(int call) {
            powerSave = call == 70;
          }

          @Override
          public boolean powerSave() {
            return powerSave || calls > 70;
          }
        },
        "power saving was on");
  }

  @Test
  public void aPersonCanSpoilARun() throws IOException {
    FakeDevice device = new FakeDevice() {
      @Override
      void before(int call) {
        interruption = call > 45 ? "the screen was covered" : null;
      }
    };
    assertFailed(device, "the screen was covered");
    assertTrue(device.calls + "", device.calls < 45 + 20);
    FakeDevice cooling = new FakeDevice() {
      @Override
      void whileWaiting() {
        interruption = "it was stopped";
      }
    };
    cooling.thermalStatus = 1;
    assertFailed(cooling, "it was stopped");
  }

  @Test
  public void unsupportedRequestsAreRefused() {
    UserError error =
        assertThrows(UserError.class, () -> measure(new FakeDevice(), request(RunRequest.Affinity.LITTLE)));
    assertEquals("no such processors", error.getMessage());
    RunRequest other = new RunRequest("run", "bundle", 8, 3, Delegate.CPU, RunRequest.Affinity.ANY, false, 1);
    assertThrows(UserError.class, () -> measure(new FakeDevice(), other));
  }

  /** A run on the GPU with one length. */
  private Map<String, Object> onGpu(FakeDevice device) throws IOException {
    BundleFolder folder = new BundleFolder(temporary.getRoot().toPath().resolve("bundle"));
    folder.keepOneLength();
    RunRequest request = new RunRequest("run", "bundle", 7, 3, Delegate.GPU, RunRequest.Affinity.ANY, false, 1);
    return DeviceRun.measure(
        device, Schedule.FULL, request, Bundle.open(folder.path), null, (state, done, of) -> seen.add(state.name()));
  }

  @Test
  public void gpuRunRecordsItsShare() throws IOException {
    FakeDevice device = new FakeDevice();
    device.delegation = new Delegation("GPU", 17, 20);
    Map<String, Object> result = onGpu(device);
    assertEquals("ok", result.get("status"));
    assertEquals(Delegate.GPU, device.opened);
    Map<?, ?> delegate = (Map<?, ?>) result.get("delegate");
    assertEquals("GPU", delegate.get("name"));
    assertEquals(17, delegate.get("delegated_ops"));
    assertEquals(20, delegate.get("total_ops"));
  }

  @Test
  public void unusedGpuGivesNoNumber() throws IOException {
    for (Delegation other : new Delegation[] {null, new Delegation("XNNPACK", 19, 20)}) {
      FakeDevice device = new FakeDevice();
      device.delegation = other;
      Map<String, Object> result = onGpu(device);
      assertEquals("failed", result.get("status"));
      assertTrue((String) result.get("error"), ((String) result.get("error")).startsWith("the GPU ran no operator"));
      assertEquals(0, ((double[]) result.get("latency_us")).length);
      // Only the first call: nothing is timed in vain.
      assertEquals(1, device.calls);
    }
  }

  @Test
  public void cpuBuildRefusesTheGpu() throws IOException {
    FakeDevice device = new FakeDevice();
    device.delegates = EnumSet.of(Delegate.CPU);
    UserError error = assertThrows(UserError.class, () -> onGpu(device));
    assertTrue(error.getMessage(), error.getMessage().startsWith("delegate must be cpu in this build of the app"));
    assertTrue(error.getMessage(), error.getMessage().endsWith("install the APK from make android RUNTIME=aar"));
    assertEquals(0, device.calls);
  }

  @Test
  public void gpuNeedsOneLength() {
    RunRequest request = new RunRequest("run", "bundle", 7, 3, Delegate.GPU, RunRequest.Affinity.ANY, false, 1);
    UserError error = assertThrows(UserError.class, () -> measure(new FakeDevice(), request));
    assertTrue(error.getMessage(), error.getMessage().contains("must have one length"));
    assertTrue(error.getMessage(), error.getMessage().contains("bundle has [4, 7]; export it with one of --lengths"));
  }
}
