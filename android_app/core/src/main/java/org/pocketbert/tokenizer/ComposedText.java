package org.pocketbert.tokenizer;

import java.util.Arrays;

/**
 * A part of a text in Unicode's form C, or as it is. A composed character spans its parts.
 *
 * <p>Source: Unicode Standard Annex 15, with the tables of {@link Composition}.
 */
final class ComposedText {
  /** The code points. */
  final int[] codes;

  private final int[] starts;
  private final int[] ends;

  private ComposedText(int[] codes, int[] starts, int[] ends) {
    this.codes = codes;
    this.starts = starts;
    this.ends = ends;
  }

  /** Reads the code points of a text between {@code from} and {@code to}. */
  static ComposedText of(int[] text, int from, int to, boolean composes) {
    int[] codes = Arrays.copyOfRange(text, from, to);
    if (composes && Arrays.stream(codes).anyMatch(code -> code >= Composition.FIRST)) {
      IntList results = new IntList();
      IntList starts = new IntList();
      IntList ends = new IntList();
      for (int first = from; first < to; ) {
        int end = first + 1;
        while (end < to && Composition.changes(text, first, end)) {
          end++;
        }
        for (int code : Composition.compose(text, first, end)) {
          results.add(code);
          starts.add(first);
          ends.add(end);
        }
        first = end;
      }
      int[] composed = results.toArray();
      if (!Arrays.equals(composed, codes)) {
        return new ComposedText(composed, starts.toArray(), ends.toArray());
      }
    }
    int[] starts = new int[codes.length];
    int[] ends = new int[codes.length];
    for (int i = 0; i < codes.length; i++) {
      starts[i] = from + i;
      ends[i] = from + i + 1;
    }
    return new ComposedText(codes, starts, ends);
  }

  /** Returns where a code point begins in the given text. */
  int start(int place) {
    return starts[place];
  }

  /** Returns the place in the given text behind the code points before {@code place}, at least 1. */
  int end(int place) {
    return ends[place - 1];
  }
}
