package org.pocketbert.host;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.List;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

public class ArgumentsTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  @Test
  public void everyFlag() throws IOException {
    String bundle = temporary.newFolder("bundle").toString();
    Arguments plain = new Arguments(bundle);
    assertEquals(List.of(), plain.lengths);
    assertEquals(List.of(1), plain.threads);
    assertNull(plain.output);
    assertNull(plain.name);
    assertNull(plain.weights);
    assertNull(plain.weightCache);
    assertFalse(plain.overwrite);
    String output = temporary.newFile("result.json").toString();
    Arguments full = new Arguments("--lengths=32,128", bundle, "--threads=4,1", "--output=" + output, "--overwrite");
    assertEquals(List.of(32, 128), full.lengths);
    assertEquals(List.of(4, 1), full.threads);
    assertEquals(output, full.output.toString());
    Arguments network = new Arguments(bundle, "--name=net=1", "--weights=random", "--weight-cache=caches");
    assertEquals("caches", network.weightCache.toString());
    assertEquals("net=1", network.name);
    assertEquals("random", network.weights);
    assertTrue(new Arguments("--help").help);
  }

  @Test
  public void everythingWrongIsListed() throws IOException {
    String output = temporary.newFile("result.json").toString();
    UserError error =
        assertThrows(
            UserError.class,
            () -> new Arguments("nothing", "--threads=0", "--lengths=8,8", "--output=" + output, "--fast", "--output=",
                "--weights=new", "--name="));
    for (String part :
        new String[] {
          "a bundle must be a folder written by pocketbert export; received nothing",
          "--threads must be different positive numbers, such as --threads=1,2; received 0",
          "received 8,8", "result.json already exists", "received --fast", "received --output=",
          "--weights must be one of trained, random; received new", "received --name=",
        }) {
      assertTrue(error.getMessage(), error.getMessage().contains(part));
    }
    assertTrue(
        assertThrows(UserError.class, () -> new Arguments()).getMessage().contains("pass at least one bundle"));
  }
}
