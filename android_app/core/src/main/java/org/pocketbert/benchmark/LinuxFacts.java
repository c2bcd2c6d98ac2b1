package org.pocketbert.benchmark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;

/** Reads a Linux machine's properties, on computers and phones. Unknown values are empty or null. */
public final class LinuxFacts {
  // The extensions that select matrix kernels, as in pocketbert_bench.machine.
  private static final List<String> INSTRUCTION_SETS =
      Arrays.asList("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve");

  private static final int MOST_PROCESSORS = 64;

  private LinuxFacts() {}

  /** The instruction set extensions relevant for speed. */
  public static List<String> instructionSets() {
    List<String> flags =
        Arrays.asList((entry("/proc/cpuinfo", "flags", "") + entry("/proc/cpuinfo", "Features", "")).split(" "));
    List<String> found = new ArrayList<>(INSTRUCTION_SETS);
    found.retainAll(flags);
    return found;
  }

  /** Physical memory. */
  public static long memoryBytes() {
    return Long.parseLong(entry("/proc/meminfo", "MemTotal", "1").split(" ")[0]) * 1024;
  }

  /** The first core's frequency governor. */
  public static String governor() {
    String governor = text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    return governor.isEmpty() ? null : governor;
  }

  /** The load averages over 1, 5 and 15 minutes. */
  public static List<Object> loadAverage() {
    List<Object> load = new ArrayList<>();
    String[] averages = text("/proc/loadavg").split(" ");
    for (int i = 0; i < 3 && averages.length > 3; i++) {
      load.add(Double.valueOf(averages[i]));
    }
    return load;
  }

  /** The calling thread's allowed processors in the kernel's format, such as {@code 0-3,7}. */
  public static String processorsAllowed() {
    String allowed = entry("/proc/thread-self/status", "Cpus_allowed_list", "");
    return allowed.isEmpty() ? null : allowed;
  }

  /**
   * Returns a frequency in kHz for each processor that reports one.
   *
   * @param folder {@code /sys/devices/system/cpu}
   * @param name {@code scaling_cur_freq}, {@code cpuinfo_max_freq}, …
   */
  public static SortedMap<Integer, Long> kilohertz(String folder, String name) {
    SortedMap<Integer, Long> kilohertz = new TreeMap<>();
    for (int i = 0; i < MOST_PROCESSORS; i++) {
      String frequency = text(folder + "/cpu" + i + "/cpufreq/" + name);
      if (frequency.matches("[0-9]{1,12}")) {
        kilohertz.put(i, Long.valueOf(frequency));
      }
    }
    return kilohertz;
  }

  /** Returns the value behind {@code key} and a colon or equals sign, from the first such line. */
  public static String entry(String path, String key, String otherwise) {
    for (String line : text(path).split("\n")) {
      if (line.matches(key + "\\s*[:=].*")) {
        return line.replaceFirst(key + "\\s*[:=]\\s*", "").trim();
      }
    }
    return otherwise;
  }

  /** Returns a small file's trimmed text; empty if it cannot be read. */
  public static String text(String path) {
    try {
      return new String(Files.readAllBytes(Paths.get(path)), StandardCharsets.UTF_8).trim();
    } catch (IOException error) {
      return "";
    }
  }
}
