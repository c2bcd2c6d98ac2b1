package org.pocketbert.tokenizer;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * A sentencepiece model's own normalization. It replaces sequences of bytes, the longest match first.
 *
 * <p>The file has a double-array trie (darts-clone), followed by the replacements, each with a zero byte at its end.
 *
 * <p>Source: google/sentencepiece {@code normalizer.cc} and s-yata/darts-clone {@code darts.h}.
 */
final class CharacterMap {
  // A unit of the trie: its label in the low bits, a flag for a value, and the children's offset; or a value.
  private static final int IS_VALUE = 1 << 31;
  private static final int HAS_VALUE = 1 << 8;
  private static final int IS_FAR = 1 << 9;
  private static final int OFFSET_SHIFT = 10;
  private static final int FAR_SHIFT = 8;

  private final int[] units;
  private final byte[] results;

  /** UTF-8 that stays as it is, the longest first. */
  private final List<byte[]> kept;

  private CharacterMap(int[] units, byte[] results, List<byte[]> kept) {
    this.units = units;
    this.results = results;
    this.kept = kept;
  }

  /** Returns a map that leaves some sequences as they are, as sentencepiece does with user-defined tokens. */
  CharacterMap keeping(List<byte[]> sequences) {
    List<byte[]> sorted = new ArrayList<>(sequences);
    Collections.sort(sorted, (one, other) -> other.length - one.length);
    return new CharacterMap(units, results, sorted);
  }

  /**
   * Reads a map. An empty file is a map that changes nothing.
   *
   * @return null if it is damaged
   */
  static CharacterMap read(byte[] content, int from, int to) {
    if (from == to) {
      return new CharacterMap(new int[0], new byte[0], Collections.emptyList());
    }
    ByteBuffer buffer = ByteBuffer.wrap(content, from, to - from).order(ByteOrder.LITTLE_ENDIAN);
    int size = buffer.remaining() > 4 ? buffer.getInt() : -1;
    if (size < 4 || size % 4 != 0 || size >= buffer.remaining()) {
      return null;
    }
    int[] units = new int[size / 4];
    for (int i = 0; i < units.length; i++) {
      units[i] = buffer.getInt();
    }
    byte[] results = new byte[buffer.remaining()];
    buffer.get(results);
    if (results[results.length - 1] != 0 || !Utf8.isValid(results, 0, results.length)) {
      return null;
    }
    for (int unit : units) {
      int value = unit & ~IS_VALUE;
      if (unit < 0 && (value >= results.length || (results[value] & 0xC0) == 0x80)) {
        return null;
      }
    }
    return new CharacterMap(units, results, Collections.emptyList());
  }

  /**
   * Appends the replacement for the start of a text: for the longest sequence in the map, otherwise for one character.
   *
   * @param text UTF-8
   * @param codes receives the resulting code points, if any
   * @return number of bytes read from the text
   */
  int normalize(byte[] text, int place, IntList codes) {
    for (byte[] sequence : kept) {
      if (startsWith(text, place, sequence)) {
        for (int i = 0; i < sequence.length; i += Utf8.length(sequence[i])) {
          codes.add(Utf8.decode(sequence, i));
        }
        return sequence.length;
      }
    }
    int length = 0;
    int value = 0;
    int node = units.length == 0 ? 0 : offset(units[0]);
    for (int i = place; i < text.length; i++) {
      node ^= text[i] & 0xFF;
      // Offsets are below 2^30, so a damaged trie ends the walk here.
      if (node >= units.length || (units[node] & (IS_VALUE | 0xFF)) != (text[i] & 0xFF)) {
        break;
      }
      int unit = units[node];
      node ^= offset(unit);
      if ((unit & HAS_VALUE) != 0 && node < units.length && units[node] < 0) {
        length = i + 1 - place;
        value = units[node] & ~IS_VALUE;
      }
    }
    if (length == 0) {
      codes.add(Utf8.decode(text, place));
      return Utf8.length(text[place]);
    }
    for (int i = value; results[i] != 0; i += Utf8.length(results[i])) {
      codes.add(Utf8.decode(results, i));
    }
    return length;
  }

  private static boolean startsWith(byte[] text, int place, byte[] sequence) {
    if (text.length - place < sequence.length) {
      return false;
    }
    for (int i = 0; i < sequence.length; i++) {
      if (text[place + i] != sequence[i]) {
        return false;
      }
    }
    return true;
  }

  private static int offset(int unit) {
    return unit >>> OFFSET_SHIFT << ((unit & IS_FAR) == 0 ? 0 : FAR_SHIFT);
  }
}
