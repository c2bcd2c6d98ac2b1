package org.pocketbert.tokenizer;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.pocketbert.ResourceTable;

/**
 * Unicode's form C, from the table in this class's resources and those of {@link BertUnicode}.
 *
 * <p>This class avoids {@link java.text.Normalizer}, because its Unicode version depends on the Java or Android version.
 */
final class Composition {
  /** No code point before this one changes, or changes another one. */
  static final int FIRST = 0x300;

  private static final String TABLE = "composition_unicode.txt";
  private static final int SYLLABLES = 0xAC00;
  private static final int LEADING = 0x1100;
  private static final int VOWELS = 0x1161;
  private static final int TRAILING = 0x11A7;
  private static final int LEADING_COUNT = 19;
  private static final int VOWEL_COUNT = 21;
  private static final int TRAILING_COUNT = 28;
  private static final int NONE = -1;

  // Two code points → the composed one.
  private static final Map<Long, Integer> PAIRS = new HashMap<>();
  private static final Map<Integer, int[]> SINGLE = new HashMap<>();

  static {
    for (String[] words : ResourceTable.lines(Composition.class, TABLE)) {
      int[] codes = new int[words.length - 1];
      for (int i = 0; i < codes.length; i++) {
        codes[i] = Integer.parseInt(words[i + 1], 16);
      }
      if (words[0].equals("compose")) {
        PAIRS.put(key(codes[0], codes[1]), codes[2]);
      } else {
        SINGLE.put(codes[0], new int[] {codes[1]});
      }
    }
  }

  private Composition() {}

  private static long key(int first, int second) {
    return (long) first << 32 | second;
  }

  private static int[] decomposition(int code) {
    int[] single = SINGLE.get(code);
    return single == null ? BertUnicode.tables().decomposition(code) : single;
  }

  private static int combiningClass(int code) {
    return BertUnicode.tables().combiningClass(code);
  }

  /** Whether the code point at {@code end} may combine or change places with those from {@code first} to it. */
  static boolean changes(int[] text, int first, int end) {
    int code = decomposition(text[end])[0];
    if (combiningClass(code) > 0) {
      return true;
    }
    int[] before = compose(text, first, end);
    return pair(before[before.length - 1], code) != NONE;
  }

  /** Returns the form C of the code points between {@code from} and {@code to}. */
  static int[] compose(int[] text, int from, int to) {
    IntList list = new IntList();
    for (int i = from; i < to; i++) {
      for (int code : decomposition(text[i])) {
        list.add(code);
      }
    }
    int[] codes = list.toArray();
    sortMarks(codes);
    int size = 0;
    int starter = NONE;
    for (int code : codes) {
      int combining = combiningClass(code);
      int last = size == 0 ? 0 : combiningClass(codes[size - 1]);
      boolean isNext = starter == size - 1;
      int composed = starter == NONE || !(isNext || last < combining) ? NONE : pair(codes[starter], code);
      if (composed != NONE) {
        codes[starter] = composed;
        continue;
      }
      if (combining == 0) {
        starter = size;
      }
      codes[size++] = code;
    }
    return Arrays.copyOf(codes, size);
  }

  /** Sorts the marks behind each starter by class; equal ones keep their order. */
  private static void sortMarks(int[] codes) {
    for (int i = 1; i < codes.length; i++) {
      int code = codes[i];
      int combining = combiningClass(code);
      int place = i;
      while (combining > 0 && place > 0 && combiningClass(codes[place - 1]) > combining) {
        codes[place] = codes[place - 1];
        place--;
      }
      codes[place] = code;
    }
  }

  /** Returns the composed code point, or {@link #NONE}. Syllables are computed (Unicode 3.12). */
  private static int pair(int first, int second) {
    int leading = first - LEADING;
    int vowel = second - VOWELS;
    if (leading >= 0 && leading < LEADING_COUNT && vowel >= 0 && vowel < VOWEL_COUNT) {
      return SYLLABLES + (leading * VOWEL_COUNT + vowel) * TRAILING_COUNT;
    }
    int syllable = first - SYLLABLES;
    int trailing = second - TRAILING;
    boolean isOpen = syllable >= 0 && syllable < LEADING_COUNT * VOWEL_COUNT * TRAILING_COUNT
        && syllable % TRAILING_COUNT == 0;
    if (isOpen && trailing > 0 && trailing < TRAILING_COUNT) {
      return first + trailing;
    }
    return PAIRS.getOrDefault(key(first, second), NONE);
  }
}
