package org.pocketbert.tokenizer;

/**
 * Reads the fields of a protocol buffer in order, from the bytes of a file.
 *
 * <p>Call {@link #next}, then the method for the field's value or {@link #skip}.
 */
final class ProtoReader {
  private static final int VARINT = 0;
  private static final int FIXED64 = 1;
  private static final int BYTES = 2;
  private static final int FIXED32 = 5;

  private final byte[] content;
  private final int end;
  private int place;
  private int wireType;

  /** The bytes are not a complete protocol buffer. */
  static final class Malformed extends Exception {
    private static final long serialVersionUID = 1;
  }

  ProtoReader(byte[] content) {
    this(content, 0, content.length);
  }

  private ProtoReader(byte[] content, int from, int to) {
    this.content = content;
    place = from;
    end = to;
  }

  /** Returns the next field's number; 0 at the end. */
  int next() throws Malformed {
    if (place == end) {
      return 0;
    }
    long tag = varint();
    wireType = (int) (tag & 7);
    long number = tag >>> 3;
    if (number < 1 || number > 0x1FFFFFFF) {
      throw new Malformed();
    }
    return (int) number;
  }

  /** Returns an integer, an enumeration's number, or 1 for true. */
  long integer() throws Malformed {
    require(VARINT);
    return varint();
  }

  float number() throws Malformed {
    require(FIXED32);
    int bits = 0;
    int from = advance(4);
    for (int i = 3; i >= 0; i--) {
      bits = bits << 8 | (content[from + i] & 0xFF);
    }
    return Float.intBitsToFloat(bits);
  }

  /** Returns a nested message, or the bytes of another value. */
  ProtoReader message() throws Malformed {
    require(BYTES);
    long length = varint();
    if (length < 0 || length > end - place) {
      throw new Malformed();
    }
    int from = advance((int) length);
    return new ProtoReader(content, from, place);
  }

  void skip() throws Malformed {
    if (wireType == VARINT) {
      varint();
    } else if (wireType == BYTES) {
      message();
    } else if (wireType == FIXED32 || wireType == FIXED64) {
      advance(wireType == FIXED32 ? 4 : 8);
    } else {
      throw new Malformed();
    }
  }

  /** Returns the start of the unread bytes in the file. */
  int from() {
    return place;
  }

  /** Returns their end. */
  int to() {
    return end;
  }

  private void require(int type) throws Malformed {
    if (wireType != type) {
      throw new Malformed();
    }
  }

  private int advance(int count) throws Malformed {
    if (count > end - place) {
      throw new Malformed();
    }
    place += count;
    return place - count;
  }

  private long varint() throws Malformed {
    long value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      byte next = content[advance(1)];
      value |= (long) (next & 0x7F) << shift;
      if (next >= 0) {
        return value;
      }
    }
    throw new Malformed();
  }
}
