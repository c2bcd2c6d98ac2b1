package org.pocketbert.json;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Strict JSON (RFC 8259), with the same code on phones and computers.
 *
 * <p>Untrusted files need a strict parser. Android's {@code org.json} accepts comments, unquoted strings and repeated
 * keys, and a JVM on a computer lacks it. Values are {@link Map} (in the file's order), {@link List}, {@link String},
 * {@link Boolean}, null, {@link Long} for whole numbers written without fraction and exponent, and {@link Double} for
 * other numbers.
 */
public final class Json {
  // Values need far more memory than their text: 8 million zeros fit into 16 MiB and fill a phone's heap. A bundle has
  // a few thousand.
  private static final int MAX_VALUES = 1 << 18;
  private static final int MAX_DEPTH = 64;
  // Normal numbers have at most 25 characters.
  private static final int MAX_NUMBER_LENGTH = 100;
  // All numbers with 18 characters fit into 64 bits.
  private static final int MAX_WHOLE_LENGTH = 18;

  private final String text;
  private int place;
  private int values;

  private Json(String text) {
    this.text = text;
  }

  /**
   * Reads one JSON value.
   *
   * @throws JsonError if the text is not JSON, repeats a key, is nested deeper than 64 levels, or has more than 262,144
   *     values or a number of more than 100 characters
   */
  public static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value(0);
    json.skipSpace();
    if (json.place < text.length()) {
      throw json.error("nothing more");
    }
    return value;
  }

  /**
   * Writes a value on one line.
   *
   * @param value maps with string keys, iterables, arrays of numbers, strings, numbers, booleans and null
   * @throws IllegalArgumentException for NaN, infinities and other classes
   */
  public static String write(Object value) {
    StringBuilder out = new StringBuilder();
    JsonWriter.write(value, out);
    return out.toString();
  }

  private Object value(int depth) {
    if (depth > MAX_DEPTH) {
      throw error("at most " + MAX_DEPTH + " levels");
    }
    if (++values > MAX_VALUES) {
      throw error("at most " + MAX_VALUES + " values");
    }
    skipSpace();
    char next = place < text.length() ? text.charAt(place) : 0;
    switch (next) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return literal("true", Boolean.TRUE);
      case 'f':
        return literal("false", Boolean.FALSE);
      case 'n':
        return literal("null", null);
      default:
        return number();
    }
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> members = new LinkedHashMap<>();
    place++;
    if (take('}')) {
      return members;
    }
    do {
      skipSpace();
      if (place >= text.length() || text.charAt(place) != '"') {
        throw error("a key in quotes");
      }
      int start = place;
      String key = string();
      if (members.containsKey(key)) {
        place = start;
        throw error("each key once");
      }
      expect(':');
      members.put(key, value(depth + 1));
    } while (take(','));
    expect('}');
    return members;
  }

  private List<Object> array(int depth) {
    List<Object> elements = new ArrayList<>();
    place++;
    if (take(']')) {
      return elements;
    }
    do {
      elements.add(value(depth + 1));
    } while (take(','));
    expect(']');
    return elements;
  }

  private String string() {
    StringBuilder out = new StringBuilder();
    for (place++; place < text.length(); place++) {
      char next = text.charAt(place);
      if (next == '"') {
        place++;
        return out.toString();
      }
      if (next < ' ') {
        throw error("no control character in a string");
      }
      out.append(next == '\\' ? escaped() : next);
    }
    throw error("a closing quote");
  }

  private char escaped() {
    place++;
    char next = place < text.length() ? text.charAt(place) : 0;
    int simple = "\"\\/bfnrt".indexOf(next);
    if (simple >= 0) {
      return "\"\\/\b\f\n\r\t".charAt(simple);
    }
    if (next != 'u') {
      throw error("a valid escape");
    }
    int code = 0;
    for (int i = 0; i < 4; i++) {
      place++;
      int digit = place < text.length() ? "0123456789abcdefABCDEF".indexOf(text.charAt(place)) : -1;
      if (digit < 0) {
        throw error("four hexadecimal digits");
      }
      code = code << 4 | (digit < 16 ? digit : digit - 6);
    }
    return (char) code;
  }

  private Number number() {
    int start = place;
    boolean whole = true;
    takeIf('-');
    if (!takeIf('0')) {
      digits("a value");
    }
    if (takeIf('.')) {
      whole = false;
      digits("a digit");
    }
    if (takeIf('e') || takeIf('E')) {
      whole = false;
      if (!takeIf('+')) {
        takeIf('-');
      }
      digits("a digit");
    }
    if (place - start > MAX_NUMBER_LENGTH) {
      throw error("a number of at most " + MAX_NUMBER_LENGTH + " characters");
    }
    String number = text.substring(start, place);
    if (whole && number.length() <= MAX_WHOLE_LENGTH) {
      return Long.valueOf(number);
    }
    return Double.valueOf(number);
  }

  private void digits(String expected) {
    int start = place;
    while (place < text.length() && text.charAt(place) >= '0' && text.charAt(place) <= '9') {
      place++;
    }
    if (place == start) {
      throw error(expected);
    }
  }

  private Object literal(String word, Object value) {
    if (!text.startsWith(word, place)) {
      throw error("a value");
    }
    place += word.length();
    return value;
  }

  private boolean take(char character) {
    skipSpace();
    return takeIf(character);
  }

  private boolean takeIf(char character) {
    boolean found = place < text.length() && text.charAt(place) == character;
    place += found ? 1 : 0;
    return found;
  }

  private void expect(char character) {
    if (!take(character)) {
      throw error("'" + character + "'");
    }
  }

  private void skipSpace() {
    while (place < text.length() && " \t\n\r".indexOf(text.charAt(place)) >= 0) {
      place++;
    }
  }

  private JsonError error(String expected) {
    int line = 1;
    for (int i = 0; i < place && i < text.length(); i++) {
      line += text.charAt(i) == '\n' ? 1 : 0;
    }
    String found = place < text.length() ? "U+" + String.format("%04X", (int) text.charAt(place)) : "the end";
    return new JsonError("expected " + expected + " in line " + line + ", found " + found);
  }
}
