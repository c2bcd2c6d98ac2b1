package org.pocketbert.benchmark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/** This process' resident memory, as Linux and Android tell it. */
public final class ProcessMemory {
  private ProcessMemory() {}

  /** Bytes now; null where the system does not tell. */
  public static Long residentBytes() {
    return entry("VmRSS:");
  }

  /** The most bytes so far; null where the system does not tell. */
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
