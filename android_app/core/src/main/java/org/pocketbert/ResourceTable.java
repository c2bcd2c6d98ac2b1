package org.pocketbert;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A generated table among a class's resources, with words on each line. */
public final class ResourceTable {
  private ResourceTable() {}

  /**
   * Reads the lines without comments.
   *
   * @param file a plain file name, in the package of {@code owner}
   */
  public static List<String[]> lines(Class<?> owner, String file) {
    List<String[]> lines = new ArrayList<>();
    try (InputStream stream = owner.getResourceAsStream(file)) {
      if (stream == null) {
        throw new IllegalStateException(file + " must be in the resources of " + owner.getName());
      }
      BufferedReader reader = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        if (!line.startsWith("#")) {
          lines.add(line.split(" "));
        }
      }
    } catch (IOException error) {
      throw new IllegalStateException(file + " cannot be read", error);
    }
    return lines;
  }
}
