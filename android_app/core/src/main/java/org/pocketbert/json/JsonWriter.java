package org.pocketbert.json;

import java.util.Map;

/** Writes values as ASCII JSON, valid in every encoding. */
final class JsonWriter {
  private JsonWriter() {}

  static void write(Object value, StringBuilder out) {
    if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long) {
      out.append(value);
    } else if (value instanceof Double) {
      double number = (Double) value;
      if (Double.isNaN(number) || Double.isInfinite(number)) {
        throw new IllegalArgumentException("JSON has no " + number);
      }
      out.append(number);
    } else if (value instanceof CharSequence) {
      quote((CharSequence) value, out);
    } else if (value instanceof Map) {
      String separator = "{";
      for (Map.Entry<?, ?> member : ((Map<?, ?>) value).entrySet()) {
        out.append(separator);
        quote((CharSequence) member.getKey(), out);
        out.append(": ");
        write(member.getValue(), out);
        separator = ", ";
      }
      out.append(((Map<?, ?>) value).isEmpty() ? "{}" : "}");
    } else if (value instanceof Iterable) {
      out.append('[');
      String separator = "";
      for (Object element : (Iterable<?>) value) {
        out.append(separator);
        write(element, out);
        separator = ", ";
      }
      out.append(']');
    } else if (value instanceof double[]) {
      String separator = "[";
      for (double element : (double[]) value) {
        out.append(separator);
        write(element, out);
        separator = ", ";
      }
      out.append(((double[]) value).length == 0 ? "[]" : "]");
    } else {
      throw new IllegalArgumentException("JSON has no " + value.getClass());
    }
  }

  private static void quote(CharSequence text, StringBuilder out) {
    out.append('"');
    for (int i = 0; i < text.length(); i++) {
      char character = text.charAt(i);
      if (character == '"' || character == '\\') {
        out.append('\\').append(character);
      } else if (character < ' ' || character > '~') {
        out.append(String.format("\\u%04x", (int) character));
      } else {
        out.append(character);
      }
    }
    out.append('"');
  }
}
