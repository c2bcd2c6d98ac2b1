package org.pocketbert.host;

import static org.junit.Assert.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

public class MainTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  @Test
  public void bundlesWhoseFoldersShareANameAreToldApart() throws IOException {
    Path student = temporary.newFolder("student", "float32").toPath();
    Path smaller = temporary.newFolder("student", "float16").toPath();
    Path teacher = temporary.newFolder("teacher", "float32").toPath();
    assertEquals(Map.of(student, "float32", smaller, "float16"), Main.labels(List.of(student, smaller)));
    for (Path path : new Path[] {student, teacher}) {
      assertEquals(path.toString(), Main.labels(List.of(student, smaller, teacher)).get(path));
    }
  }

  @Test
  public void aLinkHasTheNameOfItsFolder() throws IOException {
    Path folder = temporary.newFolder("float32").toPath();
    Path link = Files.createSymbolicLink(folder.resolveSibling("link"), folder);
    assertEquals(Map.of(link, "float32"), Main.labels(List.of(link)));
  }
}
