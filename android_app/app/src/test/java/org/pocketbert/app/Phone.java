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
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
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
