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

/** A run as a result file of version 1, the form of {@code pocketbert_bench.results}. */
public final class ResultFile {
  private ResultFile() {}

  /**
   * The content.
   *
   * @param title what the run was for
   * @param started of the run, milliseconds since 1970
   * @param measuredOn {@code device}, {@code host} or {@code qemu}
   * @param machine as the schema has it
   * @param measurements what {@link Benchmark#measure} gave
   * @param notes what a reader has to know, a sentence each
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
   * Writes a file whole or not at all.
   *
   * @throws FileAlreadyExistsException if it is there and must not be replaced
   */
  public static void write(Path path, Map<String, Object> content, boolean overwrite) throws IOException {
    if (!overwrite && Files.exists(path)) {
      throw new FileAlreadyExistsException(path.toString());
    }
    // Files of createTempFile are for their owner alone, and a result is to be shown.
    Path aside = path.resolveSibling(path.getFileName() + "." + UUID.randomUUID() + ".part");
    try {
      Files.write(aside, (Json.write(content) + "\n").getBytes(StandardCharsets.US_ASCII));
      Files.move(aside, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(aside);
    }
  }
}
