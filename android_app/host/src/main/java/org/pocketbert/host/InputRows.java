package org.pocketbert.host;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/** Reads texts, one per line: plain text, or JSON objects with string members. */
final class InputRows {
  private static final List<String> TEXT = List.of("text");
  private static final List<String> QUESTION = List.of("question", "context");

  private InputRows() {}

  /** Returns rows with {@code text} and, for pairs, {@code pair}; the first line that is not blank tells the form. */
  static Collection<Map<String, String>> texts(InputStream input, String source) throws IOException {
    return read(input, source, TEXT, "pair", null).values();
  }

  /** Returns rows with {@code question}, {@code context} and perhaps {@code id}, from JSON objects. */
  static Collection<Map<String, String>> questions(InputStream input, String source) throws IOException {
    return read(input, source, QUESTION, "id", true).values();
  }

  /** Returns rows with {@code text} by the number of their line, from plain text. */
  static Map<Integer, Map<String, String>> lines(InputStream input, String source) throws IOException {
    return read(input, source, TEXT, "pair", false);
  }

  /**
   * Returns rows by the number of their line; blank lines have none.
   *
   * @param areJson whether lines are JSON objects; null: the first line that is not blank tells
   */
  private static Map<Integer, Map<String, String>> read(
      InputStream input, String source, List<String> required, String optional, Boolean areJson) throws IOException {
    Map<Integer, Map<String, String>> rows = new LinkedHashMap<>();
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8.newDecoder()))) {
      Boolean isJson = areJson;
      int number = 0;
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        number++;
        if (line.isBlank()) {
          continue;
        }
        isJson = isJson == null ? Boolean.valueOf(line.stripLeading().startsWith("{")) : isJson;
        String where = source + ": line " + number;
        rows.put(number, isJson ? row(line, where, required, optional) : Map.of(required.get(0), line));
      }
    } catch (CharacterCodingException error) {
      throw new UserError(source + " must be UTF-8 text; it is not");
    }
    return rows;
  }

  private static Map<String, String> row(String line, String where, List<String> required, String optional) {
    String names = String.join("\" and a string \"", required);
    String rule = where + " must be a JSON object with a string \"" + names + "\"; ";
    Object parsed;
    try {
      parsed = Json.parse(line);
    } catch (JsonError error) {
      throw new UserError(rule + error.getMessage());
    }
    Map<?, ?> members = parsed instanceof Map ? (Map<?, ?>) parsed : Map.of();
    Map<String, String> row = new LinkedHashMap<>();
    for (String name : required) {
      if (!(members.get(name) instanceof String)) {
        throw new UserError(rule + "it is not");
      }
      row.put(name, (String) members.get(name));
    }
    if (members.containsKey(optional)) {
      if (!(members.get(optional) instanceof String)) {
        throw new UserError(where + ": \"" + optional + "\" must be a string");
      }
      row.put(optional, (String) members.get(optional));
    }
    return row;
  }
}
