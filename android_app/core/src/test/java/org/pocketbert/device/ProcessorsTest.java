package org.pocketbert.device;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.pocketbert.UserError;

public class ProcessorsTest {
  @Rule public final TemporaryFolder temporary = new TemporaryFolder();

  private Processors processors(int... kilohertz) throws IOException {
    for (int i = 0; i < kilohertz.length; i++) {
      Path folder = temporary.getRoot().toPath().resolve("cpu" + i).resolve("cpufreq");
      Files.createDirectories(folder);
      Files.write(folder.resolve("cpuinfo_max_freq"), (kilohertz[i] + "\n").getBytes("US-ASCII"));
    }
    return new Processors(temporary.getRoot().toString());
  }

  @Test
  public void thoseOfAPixel4() throws IOException {
    // Snapdragon 855: 4 Cortex-A55, 3 Cortex-A76 and a faster one.
    Processors processors =
        processors(1785600, 1785600, 1785600, 1785600, 2419200, 2419200, 2419200, 2841600);
    assertEquals(0b11110000, processors.mask(RunRequest.Affinity.BIG));
    assertEquals(0b00001111, processors.mask(RunRequest.Affinity.LITTLE));
  }

  @Test
  public void frequenciesOfThoseThatTell() throws IOException {
    processors(1785600, 0, 2419200);
    Files.delete(temporary.getRoot().toPath().resolve("cpu1/cpufreq/cpuinfo_max_freq"));
    String folder = temporary.getRoot().toString();
    assertEquals("{0=1785600, 2=2419200}", DeviceRun.frequencies(folder, "cpuinfo_max_freq").toString());
    assertNull(DeviceRun.frequencies(folder, "scaling_cur_freq"));
  }

  @Test
  public void equalProcessorsRefuseAffinity() throws IOException {
    for (Processors same : new Processors[] {processors(), processors(2000000, 2000000, 2000000)}) {
      UserError error = assertThrows(UserError.class, () -> same.mask(RunRequest.Affinity.BIG));
      assertTrue(error.getMessage(), error.getMessage().endsWith("received big"));
    }
  }
}
