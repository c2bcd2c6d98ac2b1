package org.pocketbert.host;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a Linux computer says of itself, in the fields of a result file. */
final class HostMachine {
  // As pocketbert_bench.machine: the ones that decide which matrix kernels run.
  private static final List<String> INSTRUCTION_SETS =
      List.of("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve");

  private HostMachine() {}

  static Map<String, Object> describe() {
    Map<String, Object> machine = new LinkedHashMap<>();
    String architecture = System.getProperty("os.arch");
    machine.put("cpu", entry("/proc/cpuinfo", "model name", architecture));
    machine.put("architecture", architecture.equals("amd64") ? "x86_64" : architecture);
    List<String> flags =
        Arrays.asList((entry("/proc/cpuinfo", "flags", "") + entry("/proc/cpuinfo", "Features", "")).split(" "));
    machine.put("instruction_sets", INSTRUCTION_SETS.stream().filter(flags::contains).toList());
    machine.put("cores", Runtime.getRuntime().availableProcessors());
    machine.put("memory_bytes", Long.parseLong(entry("/proc/meminfo", "MemTotal", "1").split(" ")[0]) * 1024);
    String name = entry("/etc/os-release", "PRETTY_NAME", "Linux").replace("\"", "");
    machine.put("system", name + ", " + System.getProperty("os.name") + " " + System.getProperty("os.version"));
    machine.put("python", null);
    machine.put("packages", Map.of("java", System.getProperty("java.version")));
    String governor = text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    machine.put("governor", governor.isEmpty() ? null : governor);
    List<Object> load = new ArrayList<>();
    String[] averages = text("/proc/loadavg").split(" ");
    for (int i = 0; i < 3 && averages.length > 3; i++) {
      load.add(Double.valueOf(averages[i]));
    }
    machine.put("load_average", load);
    return machine;
  }

  /** The hottest thermal zone's temperature. */
  static Map<String, Object> thermal() {
    Double hottest = null;
    try (DirectoryStream<Path> zones = Files.newDirectoryStream(Path.of("/sys/class/thermal"), "thermal_zone*")) {
      for (Path zone : zones) {
        String reading = text(zone.resolve("temp").toString());
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

  /** What follows {@code key} and a colon or equals sign on its first line. */
  private static String entry(String path, String key, String otherwise) {
    for (String line : text(path).split("\n")) {
      if (line.matches(key + "\\s*[:=].*")) {
        return line.replaceFirst(key + "\\s*[:=]\\s*", "").trim();
      }
    }
    return otherwise;
  }

  private static String text(String path) {
    try {
      return new String(Files.readAllBytes(Path.of(path)), StandardCharsets.UTF_8).trim();
    } catch (IOException error) {
      return "";
    }
  }
}
