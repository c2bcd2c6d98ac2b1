package org.pocketbert.device;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.pocketbert.benchmark.Schedule;
import org.pocketbert.bundle.Bundle;
import org.pocketbert.bundle.BundleFolder;
import org.pocketbert.engine.Delegate;
import org.pocketbert.engine.Delegation;
import org.pocketbert.json.Json;

/** Writes measurements of a fake phone, valid and disturbed, for a check with Python's schema. */
final class DeviceRunMain {
  private DeviceRunMain() {}

  public static void main(String[] arguments) throws IOException {
    Path output = Paths.get(arguments[0]);
    BundleFolder folder = new BundleFolder(output.resolveSibling("bundle"));
    folder.keepOneLength();
    Bundle bundle = Bundle.open(folder.path);
    List<Map<String, Object>> measurements = new ArrayList<>();
    for (boolean powerSave : new boolean[] {false, true}) {
      FakeDevice device = new FakeDevice();
      device.powerSave = powerSave;
      measurements.add(measure(device, bundle, Delegate.CPU));
    }
    FakeDevice withGpu = new FakeDevice();
    withGpu.delegation = new Delegation("GPU", 19, 20);
    measurements.add(measure(withGpu, bundle, Delegate.GPU));
    Files.write(output, Json.write(measurements).getBytes("US-ASCII"));
  }

  private static Map<String, Object> measure(FakeDevice device, Bundle bundle, Delegate delegate) {
    RunRequest request = new RunRequest("run", "bundle", 7, 3, delegate, RunRequest.Affinity.BIG, false, 2);
    return DeviceRun.measure(device, Schedule.FULL, request, bundle, null, (state, done, of) -> {});
  }
}
