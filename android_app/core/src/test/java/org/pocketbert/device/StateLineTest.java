package org.pocketbert.device;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.util.Map;
import org.junit.Test;
import org.pocketbert.json.Json;

public class StateLineTest {
  @Test
  public void lineHasAllMembers() {
    assertEquals(
        "{\"run\": \"r\", \"state\": \"warming_up\", \"done\": 5, \"of\": 0, \"reason\": null, \"result\": null}",
        StateLine.progress("r", StateLine.State.WARMING_UP, 5, 0));
    assertEquals(
        "{\"run\": null, \"state\": \"refused\", \"done\": 0, \"of\": 0, \"reason\": \"a \\u00e4 b\", \"result\": null}",
        StateLine.end(null, StateLine.State.REFUSED, "a ä b", null));
  }

  @Test
  public void longReasonFitsTheLog() {
    // The worst case: all characters escaped.
    String line = StateLine.end("r", StateLine.State.FAILED, new String(new char[5000]).replace('\0', 'ä'), "r.json");
    assertTrue(line.length() + "", line.length() < 4000);
    assertEquals("r.json", ((Map<?, ?>) Json.parse(line)).get("result"));
  }
}
