package org.pocketbert.app;

import static org.robolectric.Shadows.shadowOf;

import android.content.Context;
import android.os.Looper;
import java.io.File;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.pocketbert.benchmark.ResultFile;
import org.pocketbert.device.StateLine;
import org.pocketbert.json.Json;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.shadows.ShadowLog;

/** Controls Robolectric's phone in tests. */
final class Phone {
  private static final long PATIENCE_MILLISECONDS = 20_000;

  private Phone() {}

  static Path files() {
    Context context = RuntimeEnvironment.getApplication();
    File folder = context.getExternalFilesDir(null);
    return folder.toPath();
  }

  /** Pushes the core's test bundle, lengths 9 and 17. */
  static Path push(String name) throws IOException {
    Path folder = Files.createDirectories(files().resolve("bundles").resolve(name));
    try (DirectoryStream<Path> content = Files.newDirectoryStream(Paths.get(System.getProperty("pocketbert.bundle")))) {
      for (Path file : content) {
        Files.copy(file, folder.resolve(file.getFileName()));
      }
    }
    return folder;
  }

  /** Writes a result of the test bundle as the app would. */
  static void writeResult(String name, long started, double... latencyUs) throws IOException {
    Map<String, Object> measurement = new LinkedHashMap<>();
    measurement.put("label", "tiny");
    measurement.put("model_sha256", "a");
    measurement.put("length", 17);
    measurement.put("threads", 1);
    measurement.put("warmed_up", latencyUs.length > 1);
    measurement.put("error", null);
    measurement.put("latency_us", latencyUs);
    Path path = Files.createDirectories(files().resolve("results")).resolve(name);
    List<String> notes = new ArrayList<>();
    ResultFile.write(
        path, ResultFile.of("t", started, "device", new HashMap<>(), Arrays.asList(measurement), notes), false);
  }

  /** Runs the main thread until a condition holds. */
  static void await(BooleanSupplier condition) throws InterruptedException {
    long end = System.currentTimeMillis() + PATIENCE_MILLISECONDS;
    while (!condition.getAsBoolean()) {
      if (System.currentTimeMillis() > end) {
        throw new AssertionError("the condition must hold in time");
      }
      shadowOf(Looper.getMainLooper()).idle();
      Thread.sleep(10);
    }
  }

  /** Returns the log's lines for programs, in order. */
  static List<Map<?, ?>> lines() {
    List<Map<?, ?>> lines = new ArrayList<>();
    for (ShadowLog.LogItem item : ShadowLog.getLogsForTag(StateLine.TAG)) {
      lines.add((Map<?, ?>) Json.parse(item.msg));
    }
    return lines;
  }
}
