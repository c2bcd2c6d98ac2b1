package org.pocketbert.tokenizer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.pocketbert.ResourceTable;

/**
 * Finds added tokens in code points, with the rules of Hugging Face's tokenizers: the longest one at the leftmost
 * place, then its flags.
 */
final class AddedTokenFinder {
  private static final String TABLE = "added_token_unicode.txt";
  private static final int WORD = 1;
  private static final int SPACE = 2;

  private static final class Loaded {
    static final CodePointTable KINDS = read();
  }

  /** A found token with its place, which includes white space. */
  static final class Match {
    final AddedToken token;
    final int start;
    final int end;

    Match(AddedToken token, int start, int end) {
      this.token = token;
      this.start = start;
      this.end = end;
    }
  }

  /** A string to find. */
  private static final class Entry {
    final int[] codes;
    final AddedToken token;

    Entry(int[] codes, AddedToken token) {
      this.codes = codes;
      this.token = token;
    }
  }

  // First code point → strings, the longest first; of equal ones only the first.
  private final Map<Integer, List<Entry>> entries = new HashMap<>();

  private final boolean specialTokensInText;

  /**
   * Creates a finder.
   *
   * @param specialTokensInText whether special tokens in a text are tokens, or ordinary text
   */
  AddedTokenFinder(boolean specialTokensInText) {
    this.specialTokensInText = specialTokensInText;
  }

  /** Adds a token to find, by its normalized content. */
  void add(int[] codes, AddedToken token) {
    if (codes.length == 0) {
      return;
    }
    List<Entry> list = entries.computeIfAbsent(codes[0], first -> new ArrayList<>());
    int place = 0;
    while (place < list.size() && list.get(place).codes.length >= codes.length) {
      place++;
    }
    list.add(place, new Entry(codes, token));
  }

  boolean isEmpty() {
    return entries.isEmpty();
  }

  /** Returns the tokens between {@code from} and {@code to}, in order. */
  List<Match> find(int[] text, int from, int to) {
    List<Match> matches = new ArrayList<>();
    int behind = from;
    for (int place = from; place < to; ) {
      Entry entry = longestAt(text, place, to);
      if (entry == null) {
        place++;
        continue;
      }
      int start = place;
      int end = place + entry.codes.length;
      place = end;
      AddedToken token = entry.token;
      boolean touches = (start > from && kind(text[start - 1]) == WORD) || (end < to && kind(text[end]) == WORD);
      if ((token.singleWord && touches) || (token.special && !specialTokensInText)) {
        continue;
      }
      while (token.leftStrip && start > behind && kind(text[start - 1]) == SPACE) {
        start--;
      }
      while (token.rightStrip && end < to && kind(text[end]) == SPACE) {
        end++;
      }
      matches.add(new Match(token, start, end));
      behind = end;
    }
    return matches;
  }

  private Entry longestAt(int[] text, int place, int to) {
    List<Entry> list = entries.get(text[place]);
    if (list != null) {
      for (Entry entry : list) {
        if (isAt(text, place, to, entry.codes)) {
          return entry;
        }
      }
    }
    return null;
  }

  private static boolean isAt(int[] text, int place, int to, int[] codes) {
    if (codes.length > to - place) {
      return false;
    }
    for (int i = 1; i < codes.length; i++) {
      if (text[place + i] != codes[i]) {
        return false;
      }
    }
    return true;
  }

  /** Whether a code point is white space beside an added token. */
  static boolean isSpace(int code) {
    return kind(code) == SPACE;
  }

  private static int kind(int code) {
    return Loaded.KINDS.get(code);
  }

  private static CodePointTable read() {
    CodePointTable kinds = new CodePointTable();
    for (String[] words : ResourceTable.lines(AddedTokenFinder.class, TABLE)) {
      kinds.fill(words, 1, words[0].equals("word") ? WORD : SPACE);
    }
    return kinds;
  }
}
