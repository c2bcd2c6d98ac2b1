package org.pocketbert.host;

import static org.junit.Assert.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

public class MainTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  @Test
  public void equalFolderNamesShowPaths() throws IOException {
    Path student = temporary.newFolder("student", "float32").toPath();
    Path smaller = temporary.newFolder("student", "float16").toPath();
    Path teacher = temporary.newFolder("teacher", "float32").toPath();
    assertEquals(Map.of(student, "float32", smaller, "float16"), Main.labels(List.of(student, smaller)));
    for (Path path : new Path[] {student, teacher}) {
      assertEquals(path.toString(), Main.labels(List.of(student, smaller, teacher)).get(path));
    }
  }

  @Test
  public void aMeasurementIsALine() {
    Map<String, Object> measurement =
        new HashMap<>(
            Map.of("label", "net", "length", 17, "threads", 1, "status", "ok", "warmed_up", true,
                "latency_us", List.of(1034.5, 1234.5, 2234.5)));
    assertEquals("net at 17 tokens, 1 thread: median 1.23 ms, p90 2.03 ms, 3 runs", Main.line(measurement));
    measurement.putAll(Map.of("threads", 4, "warmed_up", false));
    assertEquals(
        "net at 17 tokens, 4 threads: median 1.23 ms, p90 2.03 ms, 3 runs, not steady",
        Main.line(measurement));
    measurement.putAll(Map.of("status", "failed", "error", "it was hot"));
    assertEquals("net at 17 tokens, 4 threads: failed: it was hot", Main.line(measurement));
  }

  @Test
  public void linkHasItsTargetsName() throws IOException {
    Path folder = temporary.newFolder("float32").toPath();
    Path link = Files.createSymbolicLink(folder.resolveSibling("link"), folder);
    assertEquals(Map.of(link, "float32"), Main.labels(List.of(link)));
  }
}
