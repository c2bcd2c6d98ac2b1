package org.pocketbert.bundle;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/** A line of answers.jsonl: a golden text with the rows that the network reads, and its final answer. */
final class GoldenLine {
  private static final int MOST_LINES = 50;
  private static final int MOST_BYTES = 200_000;

  /** The line's number, from 1. */
  final int number;

  /** The text, the first text of a pair, or the question. */
  final String text;

  /** The second text or the paragraph; null for a single text. */
  final String pair;

  /** One row for tasks that truncate texts, one or more for questions and spans, two for a pair encoded apart. */
  final List<Window> windows = new ArrayList<>();

  /** What {@code pocketbert predict} answers; null for a network without a task. */
  final Map<?, ?> answer;

  /** A row that the network reads, without padding. */
  static final class Window {
    /** Ids, with special tokens. */
    final int[] ids;

    /** Segments; null for a tokenizer with one segment. */
    final int[] typeIds;

    /** Start and end of each token in code points of its text; 0 and 0 for special tokens. */
    final int[][] offsets;

    Window(int[] ids, int[] typeIds, int[][] offsets) {
      this.ids = ids;
      this.typeIds = typeIds;
      this.offsets = offsets;
    }
  }

  private GoldenLine(int number, Fields fields, Description description, List<String> problems) {
    this.number = number;
    boolean asks = fields.names().contains("question");
    text = fields.string(asks ? "question" : "text");
    pair = asks ? fields.string("context") : fields.names().contains("pair") ? fields.string("pair") : null;
    for (Fields window : fields.objects("windows")) {
      windows.add(window(window, description, problems));
    }
    Fields object = fields.objectOrNull("answer");
    answer = object == null ? null : object.members();
    fields.close();
  }

  /**
   * Reads the file.
   *
   * @param problems receives a sentence for each violated rule; then the lines are unusable
   */
  static List<GoldenLine> read(ByteBuffer content, Description description, List<String> problems) {
    List<GoldenLine> lines = new ArrayList<>();
    String text;
    try {
      text = StandardCharsets.UTF_8.newDecoder().decode(content.duplicate()).toString();
    } catch (CharacterCodingException error) {
      problems.add(Bundle.ANSWERS + " must be UTF-8");
      return lines;
    }
    if (!text.endsWith("\n")) {
      problems.add(Bundle.ANSWERS + " must end with a line break; its last line is cut");
      return lines;
    }
    String[] parts = text.substring(0, text.length() - 1).split("\n", -1);
    if (parts.length > MOST_LINES || content.remaining() > MOST_BYTES) {
      problems.add(
          Bundle.ANSWERS + " must have 1 to " + MOST_LINES + " lines and at most " + MOST_BYTES + " bytes; it has "
              + parts.length + " lines and " + content.remaining() + " bytes");
      return lines;
    }
    for (int i = 0; i < parts.length; i++) {
      try {
        Fields fields = Fields.of(Json.parse(parts[i]), where(i + 1), problems);
        lines.add(new GoldenLine(i + 1, fields, description, problems));
      } catch (JsonError error) {
        problems.add(where(i + 1) + " " + error.getMessage());
      }
    }
    return lines;
  }

  private static String where(int number) {
    return Bundle.ANSWERS + ": line " + number;
  }

  /** Names the line in messages. */
  String subject() {
    return where(number) + " (" + Description.shown(text) + ")";
  }

  private static Window window(Fields window, Description description, List<String> problems) {
    int[] ids = numbers(window, "ids", description.vocabSize, problems);
    int[] typeIds = window.names().contains("type_ids") ? numbers(window, "type_ids", 2, problems) : null;
    List<?> pairs = window.list("offsets");
    int[][] offsets = new int[pairs.size()][];
    boolean valid = ids.length > 0 && offsets.length == ids.length && (typeIds == null || typeIds.length == ids.length);
    for (int i = 0; i < offsets.length; i++) {
      List<?> pair = pairs.get(i) instanceof List ? (List<?>) pairs.get(i) : Collections.emptyList();
      offsets[i] = new int[2];
      for (int j = 0; j < 2; j++) {
        Object value = pair.size() == 2 ? pair.get(j) : null;
        valid &= value instanceof Long && (Long) value >= 0 && (Long) value <= Integer.MAX_VALUE;
        offsets[i][j] = valid ? ((Long) value).intValue() : 0;
      }
    }
    if (!valid) {
      problems.add(window.path("offsets") + " must have a start and an end for each of the ids, and type_ids one number");
    }
    if (!description.signatures.isEmpty() && ids.length > description.signatures.lastKey()) {
      problems.add(
          window.path("ids") + " must have at most " + description.signatures.lastKey() + " ids; it has " + ids.length);
    }
    window.close();
    return new Window(ids, typeIds, offsets);
  }

  private static int[] numbers(Fields fields, String name, long below, List<String> problems) {
    long[] numbers = fields.wholeNumbers(name);
    if (!Arrays.stream(numbers).allMatch(number -> number < below)) {
      problems.add(fields.path(name) + " must be whole numbers below " + below);
      return new int[0];
    }
    return Arrays.stream(numbers).mapToInt(number -> (int) number).toArray();
  }
}
