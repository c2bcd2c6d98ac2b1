package org.pocketbert.json;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.Test;

public class JsonTest {
  @Test
  public void valuesOfAllKinds() {
    Map<String, Object> expected = new LinkedHashMap<>();
    expected.put("a", Arrays.asList(-0.5e-2, 12L, 12.0, 1e20, true, false, null));
    expected.put("\"\\/\n\u00e9\uD83D\uDE00", new LinkedHashMap<>());
    String text = " {\"a\": [-0.5e-2, 12, 12.0, 100000000000000000000, true, false, null],\n\t\"\\\"\\\\\\/\\n\\u00E9\\ud83d\\ude00\": {}} ";
    assertEquals(expected, Json.parse(text));
  }

  @Test
  public void asciiJsonReadsBack() {
    Map<String, Object> value = new LinkedHashMap<>();
    value.put("k\u0001\u00e9\uD83D\uDE00\u2028", Arrays.asList("\"\\", 0.1, Double.MIN_VALUE, 1e300, true, null));
    String text = Json.write(value);
    assertTrue(text.chars().allMatch(each -> each >= ' ' && each <= '~'));
    assertEquals(value, Json.parse(text));
    assertEquals("{}", Json.write(new LinkedHashMap<String, Object>()));
    assertEquals("[1, -2.5, []]", Json.write(Arrays.asList(1, -2.5, new double[0])));
    assertEquals("[1.0, 2.0]", Json.write(new double[] {1, 2}));
    assertThrows(IllegalArgumentException.class, () -> Json.write(Double.NaN));
    assertThrows(IllegalArgumentException.class, () -> Json.write('c'));
  }

  @Test
  public void whatIsNotJsonIsRefused() {
    String[] texts = {
      "", "{", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "01", "+1", ".5", "1.", "1e", "-", "NaN", "tru", "\"\t\"",
      "\"\\x\"", "\"\\u12g4\"", "\"abc", "1 2", "// c\n1", "{\"a\":1,\"a\":2}", "[1 2]", "\u00a01", "{\"a\" 1}",
    };
    for (String text : texts) {
      assertThrows(text, JsonError.class, () -> Json.parse(text));
    }
    String message = assertThrows(JsonError.class, () -> Json.parse("{\n\"a\": x}")).getMessage();
    assertEquals("expected a value in line 2, found U+0078", message);
  }

  @Test
  public void longNumbersAreRefused() {
    assertEquals(1.0 / 9, (Double) Json.parse(repeated("0.", "1", 98)), 1e-15);
    String message = assertThrows(JsonError.class, () -> Json.parse("[1, " + repeated("", "1", 5000) + "]")).getMessage();
    assertEquals("expected a number of at most 100 characters in line 1, found U+005D", message);
    assertThrows(JsonError.class, () -> Json.parse("1e" + repeated("", "1", 99)));
  }

  @Test
  public void tooManyValuesAreRefused() {
    for (String text : new String[] {"[" + repeated("0", ",0", 1 << 18) + "]", "[" + repeated("[]", ",{}", 1 << 18) + "]"}) {
      String message = assertThrows(JsonError.class, () -> Json.parse(text)).getMessage();
      assertTrue(message, message.startsWith("expected at most 262144 values"));
    }
    assertEquals(1 << 17, ((List<?>) Json.parse("[" + repeated("0", ",0", (1 << 17) - 1) + "]")).size());
  }

  private static String repeated(String first, String more, int times) {
    return first + new String(new char[times]).replace("\0", more);
  }

  @Test
  public void deepNestingIsRefused() {
    String deep = new String(new char[100_000]).replace('\0', '[');
    assertThrows(JsonError.class, () -> Json.parse(deep));
  }
}
