package org.pocketbert.device;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Map;
import org.junit.Test;
import org.pocketbert.UserError;
import org.pocketbert.bundle.BundleFolder;
import org.pocketbert.engine.Delegate;

public class RunRequestTest {
  private static Map<String, Object> good(Object... more) {
    Map<String, Object> given = BundleFolder.object("run", "a-1", "bundle", "sst2_int8", "length", 128, "threads", 4);
    given.putAll(BundleFolder.object(more));
    return given;
  }

  @Test
  public void everyKey() {
    RunRequest plain = RunRequest.parse(good());
    assertEquals("a-1", plain.run);
    assertEquals("sst2_int8", plain.bundle);
    assertEquals(128, plain.length);
    assertEquals(4, plain.threads);
    assertEquals(Delegate.CPU, plain.delegate);
    assertEquals(RunRequest.Affinity.ANY, plain.affinity);
    assertFalse(plain.weightCache);
    assertEquals(1, plain.repeat);
    RunRequest full = RunRequest.parse(good("delegate", "gpu", "affinity", "little", "weight_cache", "on", "repeat", 100));
    assertEquals(Delegate.GPU, full.delegate);
    assertEquals("little", full.affinity.word());
    assertTrue(full.weightCache);
    assertEquals(100, full.repeat);
  }

  @Test
  public void whatIsWrongIsRefused() {
    Object[][] wrong = {
      {"run", null}, {"run", ""}, {"run", "../a"}, {"run", ".a"}, {"run", "a/b"}, {"run", "a b"}, {"run", 7},
      {"run", new String(new char[65]).replace('\0', 'a')}, {"bundle", "-rf"}, {"bundle", null}, {"bundle", "a\n"},
      {"length", 0}, {"length", 65537}, {"length", "128"}, {"length", 128L}, {"length", null}, {"threads", 0},
      {"threads", 17}, {"threads", 1.0}, {"delegate", "npu"}, {"delegate", "CPU"}, {"delegate", null},
      {"affinity", "BIG"}, {"affinity", 1}, {"weight_cache", true}, {"repeat", 0}, {"repeat", 101}, {"repeat", null}, {"faster", true},
    };
    for (Object[] pair : wrong) {
      UserError error = assertThrows(pair[0] + " " + pair[1], UserError.class, () -> RunRequest.parse(good(pair)));
      assertTrue(error.getMessage(), error.getMessage().contains(pair[0] + " must") || pair[0].equals("faster"));
    }
  }

  @Test
  public void everythingWrongIsListed() {
    Map<String, Object> given = good("run", "", "threads", 99, "delegate", "npu", "nice", 19);
    String message = assertThrows(UserError.class, () -> RunRequest.parse(given)).getMessage();
    for (String part :
        new String[] {
          "the request: run must be 1 to 64", "threads must be a whole number from 1 to 16; received 99",
          "delegate must be one of cpu, gpu; received npu", "affinity, weight_cache, repeat; received nice",
        }) {
      assertTrue(message, message.contains(part));
    }
  }
}
