package org.pocketbert.tokenizer;

import java.util.Arrays;

/**
 * A text after BERT's normalization: code points, each with its source position in the given text.
 *
 * <p>Control characters, U+0000, U+FFFD and lone surrogates are removed. Depending on the options, the text is
 * decomposed (NFD, marks in canonical order) without nonspacing marks, and letters are lower-cased. Each special token
 * is one entry.
 */
final class CleanText {
  /** Code points; -1 - i for the special token i. */
  final IntList codes = new IntList();

  /** Their {@link BertUnicode#kind}. */
  final IntList kinds = new IntList();

  /** Start of each in the given text. */
  final IntList begins = new IntList();

  /** End of each in the given text. */
  final IntList ends = new IntList();

  private final BertUnicode unicode = BertUnicode.tables();
  private final TokenizerOptions options;

  /**
   * Cleans a text.
   *
   * @param text any text
   * @param specialTokens strings kept as single entries. All start with the same character, which occurs only once in
   *     each
   */
  CleanText(String text, TokenizerOptions options, String[] specialTokens) {
    this.options = options;
    // Normalizes each code point of the text: its first result follows a starter, `within` counts its results.
    IntList entries = new IntList();
    IntList within = new IntList();
    IntList origins = new IntList();
    IntList originEnds = new IntList();
    int offset = 0;
    for (int i = 0; i < text.length(); offset++) {
      int special = specialAt(text, i, specialTokens);
      if (special >= 0) {
        int length = specialTokens[special].length();
        entries.add(-1 - special);
        within.add(0);
        origins.add(offset);
        originEnds.add(offset + length);
        i += length;
        offset += length - 1;
        continue;
      }
      int code = text.codePointAt(i);
      i += Character.charCount(code);
      if (unicode.vanishes(code)) {
        continue;
      }
      origins.add(offset);
      originEnds.add(offset + 1);
      int first = entries.size();
      if (unicode.isSpace(code)) {
        entries.add(' ');
      } else {
        for (int part : options.stripAccents ? unicode.decomposition(code) : new int[] {code}) {
          addLower(part, entries);
        }
      }
      for (int k = first; k < entries.size(); k++) {
        within.add(k - first);
      }
    }
    int[] order = options.stripAccents ? canonicalOrder(entries) : null;
    int origin = -1;
    for (int place = 0; place < entries.size(); place++) {
      int entry = order == null ? place : order[place];
      // As in Hugging Face's tokenizers, origins do not move with the marks: only the number of entries that start a
      // new character of the given text counts.
      if (within.get(entry) == 0) {
        origin++;
      }
      int code = entries.get(entry);
      int kind = code < 0 ? BertUnicode.ISOLATED : unicode.kind(code, options);
      if (kind != BertUnicode.DROPPED) {
        codes.add(code);
        kinds.add(kind);
        begins.add(origins.get(origin));
        ends.add(originEnds.get(origin));
      }
    }
  }

  private void addLower(int code, IntList entries) {
    if (options.lowercase) {
      for (int lower : unicode.lowerCase(code)) {
        entries.add(lower);
      }
    } else {
      entries.add(code);
    }
  }

  private static int specialAt(String text, int place, String[] specialTokens) {
    if (specialTokens.length > 0 && text.charAt(place) == specialTokens[0].charAt(0)) {
      for (int i = 0; i < specialTokens.length; i++) {
        if (text.startsWith(specialTokens[i], place)) {
          return i;
        }
      }
    }
    return -1;
  }

  private int combiningClass(IntList entries, int place) {
    int code = entries.get(place);
    return code < 0 ? 0 : unicode.combiningClass(code);
  }

  /** Returns the order of the entries with marks sorted by class between starters; null if already sorted. */
  private int[] canonicalOrder(IntList entries) {
    int[] order = null;
    int size = entries.size();
    for (int first = 0; first < size; ) {
      int end = first + 1;
      boolean sorted = true;
      while (end < size && combiningClass(entries, end) > 0) {
        sorted &= combiningClass(entries, end) >= combiningClass(entries, end - 1);
        end++;
      }
      if (!sorted) {
        if (order == null) {
          order = new int[size];
          for (int i = 0; i < size; i++) {
            order[i] = i;
          }
        }
        // High bits: class; low bits: position. Sorting the numbers keeps the order of equal classes.
        long[] keys = new long[end - first];
        for (int i = first; i < end; i++) {
          keys[i - first] = (long) combiningClass(entries, i) << 32 | i;
        }
        Arrays.sort(keys);
        for (int i = first; i < end; i++) {
          order[i] = (int) keys[i - first];
        }
      }
      first = end;
    }
    return order;
  }
}
