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
import org.pocketbert.json.Json;

/** Writes the measurements of a phone made by hand, a good one and a spoiled one, for Python's schema to judge. */
final class DeviceRunMain {
  private DeviceRunMain() {}

  public static void main(String[] arguments) throws IOException {
    Path output = Paths.get(arguments[0]);
    Bundle bundle = Bundle.open(new BundleFolder(output.resolveSibling("bundle")).path);
    RunRequest request = new RunRequest("run", "bundle", 7, 3, RunRequest.Affinity.BIG, 2);
    List<Map<String, Object>> measurements = new ArrayList<>();
    for (boolean powerSave : new boolean[] {false, true}) {
      FakeDevice device = new FakeDevice();
      device.powerSave = powerSave;
      measurements.add(DeviceRun.measure(device, Schedule.FULL, request, bundle, (state, done, of) -> {}));
    }
    Files.write(output, Json.write(measurements).getBytes("US-ASCII"));
  }
}
