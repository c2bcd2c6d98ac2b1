package org.pocketbert.tokenizer;

import java.util.HashMap;
import java.util.Map;
import org.pocketbert.ResourceTable;

/**
 * A text or a part of one after ALBERT's cleaning: {@code ``} and {@code ''} are quotation marks, letters are small and
 * have no accents, and white space is joined to one space and dropped at both ends.
 *
 * <p>Source: transformers' {@code AlbertTokenizer.preprocess_text}, with the departures in {@code albert_text.py}. The
 * rules are in a table in this class's resources, since Java's Unicode version depends on the Java or Android version.
 */
final class AlbertText {
  private static final String TABLE = "albert_unicode.txt";
  private static final int DROPPED = 1;
  private static final int SPACE = 2;
  private static final int DIGIT = 3;
  private static final int FIRST_SYLLABLE = 0xAC00;
  private static final int LAST_SYLLABLE = 0xD7A3;

  private static final CodePointTable KINDS = new CodePointTable();
  private static final Map<Integer, int[]> RESULTS = new HashMap<>();

  static {
    for (String[] words : ResourceTable.lines(AlbertText.class, TABLE)) {
      read(words);
    }
  }

  /** The code points. */
  final int[] codes;

  /** Place of the source character in the given text, for each code point. */
  private final int[] starts;

  /** Place behind the source character and its accents. */
  private final int[] ends;

  private final int from;

  /**
   * Cleans the code points of a text between {@code from} and {@code to}.
   *
   * @param joinsSpaces whether to join white space and to drop it at both ends
   */
  AlbertText(int[] text, int from, int to, boolean joinsSpaces) {
    this.from = from;
    IntList results = new IntList();
    IntList first = new IntList();
    IntList behind = new IntList();
    int space = -1;
    for (int place = from; place < to; ) {
      int code = text[place];
      if (joinsSpaces && KINDS.get(code) == SPACE) {
        space = space < 0 ? place : space;
        place++;
        continue;
      }
      if (space >= 0 && results.size() > 0) {
        results.add(' ');
        first.add(space);
        behind.add(place);
      }
      space = -1;
      boolean quotes = (code == '`' || code == '\'') && place + 1 < to && text[place + 1] == code;
      int end = place + (quotes ? 2 : 1);
      int[] letters = quotes ? new int[] {'"'} : result(code);
      for (int letter : letters) {
        results.add(letter);
        first.add(place);
        behind.add(end);
      }
      if (letters.length == 0) {
        // An accent belongs to the character before it.
        for (int i = first.size() - 1; i >= 0 && first.get(i) == first.get(first.size() - 1); i--) {
          behind.set(i, end);
        }
      }
      place = end;
    }
    codes = results.toArray();
    starts = first.toArray();
    ends = behind.toArray();
  }

  /** Returns where a code point comes from; for the end, the end of the given text's last character. */
  int start(int place) {
    return place < starts.length ? starts[place] : end(place);
  }

  /** Returns the place in the given text behind the code points before {@code place}. */
  int end(int place) {
    return place == 0 ? from : ends[place - 1];
  }

  /** Whether a code point is a digit. */
  static boolean isDigit(int code) {
    return KINDS.get(code) == DIGIT;
  }

  private static int[] result(int code) {
    if (KINDS.get(code) == DROPPED) {
      return new int[0];
    }
    if (code >= FIRST_SYLLABLE && code <= LAST_SYLLABLE) {
      return BertUnicode.tables().decomposition(code);
    }
    int[] results = RESULTS.get(code);
    return results == null ? new int[] {code} : results;
  }

  private static void read(String[] words) {
    switch (words[0]) {
      case "drop":
        KINDS.fill(words, 1, DROPPED);
        break;
      case "space":
        KINDS.fill(words, 1, SPACE);
        break;
      case "digit":
        KINDS.fill(words, 1, DIGIT);
        break;
      case "map":
        int[] results = new int[words.length - 2];
        for (int i = 0; i < results.length; i++) {
          results[i] = Integer.parseInt(words[i + 2], 16);
        }
        RESULTS.put(Integer.parseInt(words[1], 16), results);
        break;
      default:
        throw new IllegalStateException(TABLE + " has an unknown line: " + words[0]);
    }
  }
}
