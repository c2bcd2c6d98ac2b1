package org.pocketbert.tokenizer;

/** A part of a text with the characters of a sentencepiece model's map, and with all its white space. */
final class MappedText {
  /** The code points. */
  final int[] codes;

  /** Place of the source character in the given text, for each code point and for the end. */
  final int[] origins;

  private MappedText(int[] codes, int[] origins) {
    this.codes = codes;
    this.origins = origins;
  }

  /** Maps a part of a text; with {@code cleans}, after ALBERT's cleaning without changes to white space. */
  static MappedText of(int[] text, int from, int to, CharacterMap map, boolean cleans) {
    if (!cleans) {
      return of(text, from, to, map);
    }
    AlbertText cleaned = new AlbertText(text, from, to, false);
    MappedText mapped = of(cleaned.codes, 0, cleaned.codes.length, map);
    for (int i = 0; i < mapped.origins.length; i++) {
      mapped.origins[i] = i == mapped.codes.length ? to : cleaned.start(mapped.origins[i]);
    }
    return mapped;
  }

  private static MappedText of(int[] text, int from, int to, CharacterMap map) {
    byte[] bytes = Utf8.encode(text, from, to);
    IntList results = new IntList();
    IntList places = new IntList();
    int origin = from;
    for (int place = 0; place < bytes.length; ) {
      int behind = place + map.normalize(bytes, place, results);
      while (places.size() < results.size()) {
        places.add(origin);
      }
      for (; place < behind; place += Utf8.length(bytes[place])) {
        origin++;
      }
    }
    places.add(to);
    return new MappedText(results.toArray(), places.toArray());
  }
}
