package org.pocketbert.tokenizer;

/**
 * A text after sentencepiece's normalization: mapped characters, with one {@code ▁} for white space before each word
 * and none at the end.
 *
 * <p>Source: google/sentencepiece {@code Normalizer::Normalize}, with XLM-R's settings.
 */
final class NormalizedText {
  private static final int SPACE_SYMBOL = 0x2581;

  /** The code points. */
  final int[] codes;

  /** Position of the source character in the given text, for each code point and for the end. */
  private final int[] origins;

  /** Normalizes the code points of a text between {@code from} and {@code to}. */
  NormalizedText(int[] text, int from, int to, CharacterMap map) {
    byte[] bytes = Utf8.encode(text, from, to);
    IntList results = new IntList();
    IntList places = new IntList();
    IntList character = new IntList();
    int origin = from;
    boolean started = false;
    boolean afterSpace = true;
    for (int place = 0; place < bytes.length; ) {
      character.truncate(0);
      int behind = place + map.normalize(bytes, place, character);
      int size = character.size();
      if (!started && !(size == 1 && character.get(0) == ' ')) {
        started = true;
        results.add(SPACE_SYMBOL);
        places.add(origin);
      }
      for (int i = 0; i < size; i++) {
        int code = character.get(i);
        // Repeated spaces are dropped only at the start of a character's replacement.
        boolean dropped = afterSpace && code == ' ';
        if (!dropped) {
          afterSpace = false;
          results.add(code == ' ' ? SPACE_SYMBOL : code);
          places.add(origin);
        }
      }
      if (size > 0) {
        afterSpace = endsWithSpace(character, afterSpace);
      }
      for (; place < behind; place += Utf8.length(bytes[place])) {
        origin++;
      }
    }
    while (results.size() > 0 && results.get(results.size() - 1) == SPACE_SYMBOL) {
      origin = places.get(results.size() - 1);
      results.truncate(results.size() - 1);
      places.truncate(results.size());
    }
    places.add(origin);
    codes = results.toArray();
    origins = places.toArray();
  }

  private static boolean endsWithSpace(IntList character, boolean afterSpace) {
    // A replacement of dropped spaces only does not change the state.
    return afterSpace || character.get(character.size() - 1) == ' ';
  }

  /** Adds a token for the code points between {@code begin} and {@code end}. */
  void addToken(int id, int begin, int end, TokenList tokens) {
    int first = begin;
    while (first < end && codes[first] == SPACE_SYMBOL) {
      first++;
    }
    int behind = end;
    while (first < end && behind < codes.length && origins[behind] <= origins[end - 1]) {
      behind++;
    }
    tokens.add(id, origins[first], origins[behind]);
  }
}
