package org.pocketbert.tokenizer;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Converts between UTF-8 and code points, both in arrays. */
final class Utf8 {
  private Utf8() {}

  /** Encodes code points without surrogates. */
  static byte[] encode(int[] text, int from, int to) {
    int length = 0;
    for (int i = from; i < to; i++) {
      length += length(text[i]);
    }
    byte[] bytes = new byte[length];
    int place = 0;
    for (int i = from; i < to; i++) {
      place = put(text[i], bytes, place);
    }
    return bytes;
  }

  /** Returns the number of bytes of a code point. */
  static int length(int code) {
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }

  private static int put(int code, byte[] bytes, int place) {
    int count = length(code);
    if (count == 1) {
      bytes[place] = (byte) code;
      return place + 1;
    }
    for (int i = count - 1; i > 0; i--) {
      bytes[place + i] = (byte) (0x80 | (code & 0x3F));
      code >>= 6;
    }
    // The number of leading ones is the number of bytes.
    bytes[place] = (byte) (0xF00 >> count | code);
    return place + count;
  }

  /** Returns the number of bytes in the character that starts with this byte of valid UTF-8. */
  static int length(byte first) {
    return first >= 0 ? 1 : (first & 0xE0) == 0xC0 ? 2 : (first & 0xF0) == 0xE0 ? 3 : 4;
  }

  /** Returns the code point at a position of valid UTF-8. */
  static int decode(byte[] bytes, int place) {
    int count = length(bytes[place]);
    int code = count == 1 ? bytes[place] : bytes[place] & (0x7F >> count);
    for (int i = 1; i < count; i++) {
      code = code << 6 | (bytes[place + i] & 0x3F);
    }
    return code;
  }

  /** Whether a part of an array is UTF-8. */
  static boolean isValid(byte[] bytes, int from, int to) {
    boolean ascii = true;
    for (int i = from; i < to; i++) {
      ascii &= bytes[i] >= 0;
    }
    return ascii || string(bytes, from, to) != null;
  }

  /** Returns a part of an array as a string; null if it is not UTF-8. */
  static String string(byte[] bytes, int from, int to) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes, from, to - from)).toString();
    } catch (CharacterCodingException error) {
      return null;
    }
  }
}
