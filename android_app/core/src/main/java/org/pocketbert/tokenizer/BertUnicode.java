package org.pocketbert.tokenizer;

import java.util.HashMap;
import java.util.Map;
import org.pocketbert.ResourceTable;

/**
 * BERT's normalization of each code point, from the table in this class's resources.
 *
 * <p>This class avoids {@link Character} and {@link java.text.Normalizer}: their Unicode version depends on the Java or
 * Android version, so one text could have different tokens on two phones.
 */
final class BertUnicode {
  static final int WORD = 0;
  static final int SPACE = 1;
  static final int ISOLATED = 2;
  static final int DROPPED = 3;

  private static final String TABLE = "bert_unicode.txt";
  private static final int KIND_BITS = 3;
  private static final int MARK = 4;
  private static final int IDEOGRAPH = 8;

  // Decomposition of Hangul syllables (Unicode 3.12).
  private static final int SYLLABLES = 0xAC00;
  private static final int SYLLABLE_COUNT = 11172;
  private static final int LEADING = 0x1100;
  private static final int VOWELS = 0x1161;
  private static final int TRAILING = 0x11A7;
  private static final int VOWEL_COUNT = 21;
  private static final int TRAILING_COUNT = 28;

  private final CodePointTable properties = new CodePointTable();
  private final CodePointTable combiningClasses = new CodePointTable();
  private final Map<Integer, int[]> decompositions = new HashMap<>();
  private final Map<Integer, int[]> lowerCases = new HashMap<>();

  private static final class Loaded {
    static final BertUnicode TABLES = new BertUnicode();
  }

  /** The tables, read on first use. */
  static BertUnicode tables() {
    return Loaded.TABLES;
  }

  private BertUnicode() {
    for (String[] words : ResourceTable.lines(BertUnicode.class, TABLE)) {
      read(words);
    }
  }

  private void read(String[] words) {
    switch (words[0]) {
      case "drop":
        properties.fill(words, 1, DROPPED);
        break;
      case "space":
        properties.fill(words, 1, SPACE);
        break;
      case "isolated":
        properties.fill(words, 1, ISOLATED);
        break;
      case "ideograph":
        properties.fill(words, 1, IDEOGRAPH);
        break;
      case "mark":
        properties.fill(words, 1, MARK);
        break;
      case "order":
        combiningClasses.fill(words, 2, Integer.parseInt(words[1], 16));
        break;
      case "decompose":
        put(decompositions, words);
        break;
      case "lower":
        put(lowerCases, words);
        break;
      default:
        throw new IllegalStateException(TABLE + " has an unknown line: " + words[0]);
    }
  }

  private static void put(Map<Integer, int[]> map, String[] words) {
    int[] results = new int[words.length - 2];
    for (int i = 0; i < results.length; i++) {
      results[i] = Integer.parseInt(words[i + 2], 16);
    }
    map.put(Integer.parseInt(words[1], 16), results);
  }

  /**
   * Returns the treatment of a code point after the options for accents and case.
   *
   * @return {@link #WORD}, {@link #SPACE}, {@link #ISOLATED} (a word of its own) or {@link #DROPPED}
   */
  int kind(int code, TokenizerOptions options) {
    int property = properties.get(code);
    if ((property & MARK) != 0 && options.stripAccents) {
      return DROPPED;
    }
    return (property & IDEOGRAPH) != 0 && options.tokenizeChineseChars ? ISOLATED : property & KIND_BITS;
  }

  /** Whether a code point is a word because it is an ideograph. */
  boolean isIdeograph(int code, TokenizerOptions options) {
    return options.tokenizeChineseChars && code >= 0 && (properties.get(code) & IDEOGRAPH) != 0;
  }

  /** Whether a code point is an accent or another mark on the letter before it, or decomposes into such marks. */
  boolean isMark(int code) {
    for (int part : decomposition(code)) {
      if ((properties.get(part) & MARK) == 0) {
        return false;
      }
    }
    return true;
  }

  /** Whether a code point of the given text is white space. */
  boolean isSpace(int code) {
    return properties.get(code) == SPACE;
  }

  /** Whether a code point of the given text is removed first, as lone surrogates are. */
  boolean vanishes(int code) {
    return properties.get(code) == DROPPED || (code >= 0xD800 && code < 0xE000);
  }

  /** The canonical combining class; 0 for the start of a character. */
  int combiningClass(int code) {
    return combiningClasses.get(code);
  }

  /** Returns one or two code points in lower case. */
  int[] lowerCase(int code) {
    int[] results = lowerCases.get(code);
    return results == null ? new int[] {code} : results;
  }

  /** Returns the canonical decomposition. */
  int[] decomposition(int code) {
    int syllable = code - SYLLABLES;
    if (syllable >= 0 && syllable < SYLLABLE_COUNT) {
      int leading = LEADING + syllable / (VOWEL_COUNT * TRAILING_COUNT);
      int vowel = VOWELS + syllable / TRAILING_COUNT % VOWEL_COUNT;
      int trailing = syllable % TRAILING_COUNT;
      return trailing == 0 ? new int[] {leading, vowel} : new int[] {leading, vowel, TRAILING + trailing};
    }
    int[] results = decompositions.get(code);
    return results == null ? new int[] {code} : results;
  }
}
