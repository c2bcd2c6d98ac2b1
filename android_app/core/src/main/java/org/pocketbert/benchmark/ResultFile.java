package org.pocketbert.benchmark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TimeZone;
import java.util.UUID;
import org.pocketbert.json.Json;

/** Writes result files with schema version 1, as {@code pocketbert_bench.results} does. */
public final class ResultFile {
  private ResultFile() {}

  /**
   * Creates the content.
   *
   * @param title purpose of the run
   * @param started start of the run, milliseconds since 1970
   * @param measuredOn {@code device}, {@code host} or {@code qemu}
   * @param machine its description, as in the schema
   * @param measurements results of {@link Benchmark#measure}
   * @param notes sentences for the reader
   */
  public static Map<String, Object> of(
      String title,
      long started,
      String measuredOn,
      Map<String, Object> machine,
      List<Map<String, Object>> measurements,
      List<String> notes) {
    SimpleDateFormat format = new SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss'+00:00'", Locale.ROOT);
    format.setTimeZone(TimeZone.getTimeZone("UTC"));
    Map<String, Object> content = new LinkedHashMap<>();
    content.put("schema_version", 1);
    content.put("title", title);
    content.put("created", format.format(new Date(started)));
    content.put("measured_on", measuredOn);
    content.put("commit", null);
    content.put("quick", false);
    content.put("machine", machine);
    content.put("measurements", measurements);
    content.put("accuracies", new ArrayList<>());
    content.put("ratios", new ArrayList<>());
    content.put("notes", notes);
    return content;
  }

  /**
   * Writes a complete file or none.
   *
   * @throws FileAlreadyExistsException if the file exists and {@code overwrite} is false
   */
  public static void write(Path path, Map<String, Object> content, boolean overwrite) throws IOException {
    if (!overwrite && Files.exists(path)) {
      throw new FileAlreadyExistsException(path.toString());
    }
    // Not createTempFile: its files are readable for their owner only, and others need the result.
    Path aside = path.resolveSibling(path.getFileName() + "." + UUID.randomUUID() + ".part");
    try {
      Files.write(aside, (Json.write(content) + "\n").getBytes(StandardCharsets.US_ASCII));
      Files.move(aside, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(aside);
    }
  }
}
