package org.pocketbert.host;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.pocketbert.benchmark.LinuxFacts;

/** Describes a Linux computer in the fields of a result file. */
final class HostMachine {
  private HostMachine() {}

  static Map<String, Object> describe() {
    Map<String, Object> machine = new LinkedHashMap<>();
    String architecture = System.getProperty("os.arch");
    machine.put("cpu", LinuxFacts.entry("/proc/cpuinfo", "model name", architecture));
    machine.put("architecture", architecture.equals("amd64") ? "x86_64" : architecture);
    machine.put("instruction_sets", LinuxFacts.instructionSets());
    machine.put("cores", Runtime.getRuntime().availableProcessors());
    machine.put("memory_bytes", LinuxFacts.memoryBytes());
    String name = LinuxFacts.entry("/etc/os-release", "PRETTY_NAME", "Linux").replace("\"", "");
    machine.put("system", name + ", " + System.getProperty("os.name") + " " + System.getProperty("os.version"));
    machine.put("python", null);
    machine.put("packages", Map.of("java", System.getProperty("java.version")));
    machine.put("governor", LinuxFacts.governor());
    machine.put("load_average", LinuxFacts.loadAverage());
    return machine;
  }

  /** Returns the hottest thermal zone's temperature. */
  static Map<String, Object> thermal() {
    Double hottest = null;
    try (DirectoryStream<Path> zones = Files.newDirectoryStream(Path.of("/sys/class/thermal"), "thermal_zone*")) {
      for (Path zone : zones) {
        String reading = LinuxFacts.text(zone.resolve("temp").toString());
        if (reading.matches("-?[0-9]+")) {
          double celsius = Integer.parseInt(reading) / 1000.0;
          hottest = hottest == null ? celsius : Math.max(hottest, celsius);
        }
      }
    } catch (IOException error) {
      hottest = null;
    }
    Map<String, Object> thermal = new LinkedHashMap<>();
    thermal.put("status", hottest == null ? "unknown" : "read");
    thermal.put("celsius", hottest);
    return thermal;
  }
}
