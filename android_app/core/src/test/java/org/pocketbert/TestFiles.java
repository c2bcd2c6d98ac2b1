package org.pocketbert;

import static org.junit.Assume.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Where the repository's goldens and the real data beside the checkout are. */
public final class TestFiles {
  private TestFiles() {}

  public static String golden(String name) throws IOException {
    return new String(Files.readAllBytes(property("pocketbert.goldens").resolve(name)), StandardCharsets.UTF_8);
  }

  /** A file of the real data; without it the test is skipped, but fails where CI=true. */
  public static Path shared(String name) {
    Path path = property("pocketbert.shared").resolve(name);
    if (!Files.exists(path) && "true".equals(System.getenv("CI"))) {
      throw new AssertionError("CI=true and the real data is not there: " + name);
    }
    assumeTrue("the real data is not there: " + name, Files.exists(path));
    return path;
  }

  private static Path property(String name) {
    String value = System.getProperty(name);
    if (value == null) {
      throw new AssertionError("the tests run by Maven, which sets " + name);
    }
    return Paths.get(value);
  }
}
