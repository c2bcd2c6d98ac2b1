package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.UserError;
import org.pocketbert.json.Json;
import org.pocketbert.json.JsonError;

/** The tokens and merges of byte-level BPE, from a model's vocab.json and merges.txt. */
public final class ByteBpeVocabulary {
  private static final int BYTES = 256;
  private static final String HEADER = "#version";

  /** Special tokens, and the form of texts. */
  final ByteBpeLayout layout;

  private final int size;
  private final int[] byteIds = new int[BYTES];
  private final List<AddedToken> special;
  // From a pair of ids to its rank, and from the rank to the id of the merged token.
  private final LongIntMap ranks;
  private final int[] merged;

  private ByteBpeVocabulary(Map<String, Integer> ids, List<String[]> merges, ByteBpeLayout layout) {
    this.layout = layout;
    size = ids.size();
    for (int i = 0; i < BYTES; i++) {
      byteIds[i] = ids.get(byteCharacter(i));
    }
    special = layout.specialIn(ids);
    ranks = new LongIntMap(merges.size());
    merged = new int[merges.size()];
    for (int rank = 0; rank < merged.length; rank++) {
      String[] pair = merges.get(rank);
      ranks.putIfAbsent(key(ids.get(pair[0]), ids.get(pair[1])), rank);
      merged[rank] = ids.get(pair[0] + pair[1]);
    }
  }

  /** Reads both files of a RoBERTa. */
  public static ByteBpeVocabulary parse(byte[] vocabJson, byte[] mergesTxt) {
    return parse(vocabJson, mergesTxt, ByteBpeLayout.XLM_R);
  }

  /**
   * Reads both files.
   *
   * @param vocabJson maps tokens to the ids 0, 1, 2…
   * @param mergesTxt one pair of tokens per line, in the order of merging; lines with {@code #version} at the start are
   *     comments
   * @param layout special tokens, and the form of texts
   * @throws UserError lists all problems if a file has another format or the two contradict each other
   */
  public static ByteBpeVocabulary parse(byte[] vocabJson, byte[] mergesTxt, ByteBpeLayout layout) {
    List<String> problems = new ArrayList<>();
    Map<String, Integer> ids = readIds(vocabJson, problems);
    List<String[]> merges = readMerges(mergesTxt, problems);
    if (problems.isEmpty()) {
      check(ids, merges, layout.required(), problems);
    }
    UserError.throwIfAny(problems, "vocab.json and merges.txt");
    return new ByteBpeVocabulary(ids, merges, layout);
  }

  private static Map<String, Integer> readIds(byte[] content, List<String> problems) {
    String text = Utf8.string(content, 0, content.length);
    if (text == null) {
      problems.add("vocab.json must be UTF-8; it is not; convert the file");
      return null;
    }
    Object value;
    try {
      value = Json.parse(text);
    } catch (JsonError error) {
      problems.add("vocab.json " + error.getMessage());
      return null;
    }
    Map<?, ?> entries = value instanceof Map ? (Map<?, ?>) value : new HashMap<>();
    Map<String, Integer> ids = new HashMap<>();
    boolean[] used = new boolean[entries.size()];
    for (Map.Entry<?, ?> entry : entries.entrySet()) {
      long id = entry.getValue() instanceof Long ? (Long) entry.getValue() : -1;
      if (id < 0 || id >= used.length || used[(int) id]) {
        ids.clear();
        break;
      }
      used[(int) id] = true;
      ids.put((String) entry.getKey(), (int) id);
    }
    if (ids.isEmpty()) {
      problems.add("a vocabulary must map tokens to the ids 0, 1, 2…, each used once; received other ids");
    }
    return ids;
  }

  private static List<String[]> readMerges(byte[] content, List<String> problems) {
    List<String[]> merges = new ArrayList<>();
    String text = Utf8.string(content, 0, content.length);
    if (text == null) {
      problems.add("merges.txt must be UTF-8; it is not; convert the file");
      return merges;
    }
    List<String> wrong = new ArrayList<>();
    String[] lines = text.split("\n", -1);
    for (int number = 0; number < lines.length; number++) {
      String line = lines[number];
      if (line.endsWith("\r") && number < lines.length - 1) {
        line = line.substring(0, line.length() - 1);
      }
      if (line.isEmpty() || line.startsWith(HEADER)) {
        continue;
      }
      int space = line.indexOf(' ');
      if (space > 0 && space < line.length() - 1 && line.indexOf(' ', space + 1) < 0) {
        merges.add(new String[] {line.substring(0, space), line.substring(space + 1)});
      } else {
        wrong.add("'" + line.substring(0, Math.min(40, line.length())) + "' in line " + (number + 1));
      }
    }
    if (!wrong.isEmpty()) {
      problems.add("a line in merges.txt must have two tokens; received " + Vocabulary.some(wrong));
    }
    return merges;
  }

  private static void check(Map<String, Integer> ids, List<String[]> merges, List<String> required, List<String> problems) {
    List<String> missing = new ArrayList<>();
    for (String token : required) {
      if (!ids.containsKey(token)) {
        missing.add(token);
      }
    }
    if (!missing.isEmpty()) {
      problems.add(
          "a vocabulary must have " + String.join(" ", required) + "; received " + ids.size()
              + " tokens without " + String.join(" ", missing));
    }
    List<String> absent = new ArrayList<>();
    for (int i = 0; i < BYTES; i++) {
      if (!ids.containsKey(byteCharacter(i))) {
        absent.add(byteCharacter(i));
      }
    }
    if (!absent.isEmpty()) {
      problems.add(
          "a byte-level vocabulary must have a token for each of the 256 bytes; received one without " + absent.size()
              + ": " + Vocabulary.some(absent));
    }
    List<String> contradicting = new ArrayList<>();
    LongIntMap seen = new LongIntMap(merges.size());
    int repeated = 0;
    for (int rank = 0; rank < merges.size(); rank++) {
      String[] pair = merges.get(rank);
      for (String token : new String[] {pair[0], pair[1], pair[0] + pair[1]}) {
        if (!ids.containsKey(token)) {
          contradicting.add("merge " + (rank + 1) + " ('" + pair[0] + "', '" + pair[1] + "') without '" + token + "'");
        }
      }
      if (ids.containsKey(pair[0]) && ids.containsKey(pair[1])) {
        repeated += seen.putIfAbsent(key(ids.get(pair[0]), ids.get(pair[1])), rank) == LongIntMap.ABSENT ? 0 : 1;
      }
    }
    if (!contradicting.isEmpty()) {
      problems.add(
          "the vocabulary must have both parts and the result of each merge; received "
              + Vocabulary.some(contradicting) + "; take both files from one model");
    }
    if (repeated > 0) {
      problems.add("merges must be unique; received " + repeated + " repetitions");
    }
  }

  /** Returns GPT-2's character for a byte: itself if printable in Latin-1, otherwise one from U+0100 on. */
  private static String byteCharacter(int value) {
    boolean printable = (value > 0x20 && value < 0x7F) || (value > 0xA0 && value != 0xAD);
    int code = value;
    if (!printable) {
      // 0 to 0x20, 0x7F to 0xA0 and 0xAD, numbered in this order.
      code = 0x100 + (value <= 0x20 ? value : value == 0xAD ? 67 : value - 0x7F + 33);
    }
    return String.valueOf((char) code);
  }

  private static long key(int left, int right) {
    return (long) left << 32 | right;
  }

  /** Returns the number of tokens. */
  public int size() {
    return size;
  }

  int byteId(byte value) {
    return byteIds[value & 0xFF];
  }

  /** Returns the special tokens in the vocabulary, with their usual flags. */
  List<AddedToken> special() {
    return special;
  }

  /** Returns the rank of a pair of ids, or {@link LongIntMap#ABSENT}. */
  int rank(int left, int right) {
    return ranks.get(key(left, right));
  }

  /** Returns the id of the token created by the merge with this rank. */
  int merged(int rank) {
    return merged[rank];
  }
}
