package org.pocketbert.benchmark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/** This process's resident memory on Linux and Android. */
public final class ProcessMemory {
  private ProcessMemory() {}

  /** Returns the current bytes; null if unknown. */
  public static Long residentBytes() {
    return entry("VmRSS:");
  }

  /** Returns the peak in bytes; null if unknown. */
  static Long peakBytes() {
    return entry("VmHWM:");
  }

  private static Long entry(String name) {
    try {
      for (String line : Files.readAllLines(Paths.get("/proc/self/status"), StandardCharsets.ISO_8859_1)) {
        if (line.startsWith(name)) {
          return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
        }
      }
    } catch (IOException | NumberFormatException error) {
      return null;
    }
    return null;
  }
}
