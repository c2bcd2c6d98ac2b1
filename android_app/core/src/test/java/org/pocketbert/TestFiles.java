package org.pocketbert;

import static org.junit.Assume.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Finds the repository's goldens, and the real data beside the checkout. */
public final class TestFiles {
  private TestFiles() {}

  public static String golden(String name) throws IOException {
    return new String(Files.readAllBytes(property("pocketbert.goldens").resolve(name)), StandardCharsets.UTF_8);
  }

  /** Returns a file with real data. Without it, the test is skipped, or fails if CI=true. */
  public static Path shared(String name) {
    Path path = property("pocketbert.shared").resolve(name);
    if (!Files.exists(path) && "true".equals(System.getenv("CI"))) {
      throw new AssertionError("CI=true, but the real data is missing: " + name);
    }
    assumeTrue("the real data is missing: " + name, Files.exists(path));
    return path;
  }

  private static Path property(String name) {
    String value = System.getProperty(name);
    if (value == null) {
      throw new AssertionError("run the tests with Maven, which sets " + name);
    }
    return Paths.get(value);
  }
}
