package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * A text after BERT's normalization: code points, each with its source position in the given text.
 *
 * <p>Control characters, U+0000, U+FFFD and lone surrogates are removed. Depending on the options, the text is
 * decomposed (NFD, marks in canonical order) without nonspacing marks, and letters are lower-cased. Each added token
 * is one entry.
 */
final class CleanText {
  /** Code points; negative for added tokens, see {@link #tokenAt}. */
  final IntList codes = new IntList();

  /** Their {@link BertUnicode#kind}. */
  final IntList kinds = new IntList();

  /** Start of each in the given text. */
  final IntList begins = new IntList();

  /** End of each in the given text. */
  final IntList ends = new IntList();

  private final BertUnicode unicode = BertUnicode.tables();
  private final TokenizerOptions options;
  private final List<AddedToken> tokens = new ArrayList<>();

  /**
   * Cleans a text.
   *
   * @param text code points
   * @param matches added tokens in the text, kept as single entries
   */
  CleanText(int[] text, TokenizerOptions options, List<AddedTokenFinder.Match> matches) {
    this.options = options;
    // Normalizes each code point of the text: its first result follows a starter, `within` counts its results.
    IntList entries = new IntList();
    IntList within = new IntList();
    IntList origins = new IntList();
    IntList originEnds = new IntList();
    int next = 0;
    for (int offset = 0; offset < text.length; offset++) {
      if (next < matches.size() && matches.get(next).start == offset) {
        AddedTokenFinder.Match match = matches.get(next++);
        entries.add(placeholder(match.token));
        within.add(0);
        origins.add(offset);
        originEnds.add(match.end);
        offset = match.end - 1;
        continue;
      }
      int code = text[offset];
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
        add(code, kind, origins.get(origin), originEnds.get(origin));
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

  private int placeholder(AddedToken token) {
    tokens.add(token);
    return -tokens.size();
  }

  /** Returns the added token at an entry, or null. */
  AddedToken tokenAt(int entry) {
    return codes.get(entry) < 0 ? tokens.get(-1 - codes.get(entry)) : null;
  }

  /** Returns the normalized text as Hugging Face's tokenizers have it, with spaces around ideographs. */
  int[] normalized() {
    IntList text = new IntList();
    addNormalized(0, codes.size(), text, new IntList());
    return text.toArray();
  }

  private void addNormalized(int from, int to, IntList text, IntList entries) {
    for (int i = from; i < to; i++) {
      boolean isIdeograph = unicode.isIdeograph(codes.get(i), options);
      for (int code : isIdeograph ? new int[] {' ', codes.get(i), ' '} : new int[] {codes.get(i)}) {
        text.add(code);
        entries.add(i);
      }
    }
  }

  /** Returns this text with the added tokens in its normalized parts as single entries. */
  CleanText withNormalized(AddedTokenFinder finder) {
    CleanText result = new CleanText(new int[0], options, Collections.emptyList());
    result.tokens.addAll(tokens);
    for (int from = 0; from < codes.size(); ) {
      int to = from;
      while (to < codes.size() && codes.get(to) >= 0) {
        to++;
      }
      IntList text = new IntList();
      IntList entries = new IntList();
      addNormalized(from, to, text, entries);
      int behind = 0;
      for (AddedTokenFinder.Match match : finder.find(text.toArray(), 0, text.size())) {
        result.copy(this, text, entries, behind, match.start);
        int begin = begins.get(entries.get(match.start));
        int end = ends.get(entries.get(match.end - 1));
        result.add(result.placeholder(match.token), BertUnicode.ISOLATED, begin, end);
        behind = match.end;
      }
      result.copy(this, text, entries, behind, text.size());
      if (to < codes.size()) {
        result.add(codes.get(to), kinds.get(to), begins.get(to), ends.get(to));
      }
      from = to + 1;
    }
    return result;
  }

  /** Adds the entries of another text whose own characters are in a range of its normalized text. */
  private void copy(CleanText other, IntList text, IntList entries, int from, int to) {
    for (int i = from; i < to; i++) {
      int entry = entries.get(i);
      boolean isOwn = text.get(i) == other.codes.get(entry);
      if (isOwn) {
        add(other.codes.get(entry), other.kinds.get(entry), other.begins.get(entry), other.ends.get(entry));
      }
    }
  }

  private void add(int code, int kind, int begin, int end) {
    codes.add(code);
    kinds.add(kind);
    begins.add(begin);
    ends.add(end);
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
