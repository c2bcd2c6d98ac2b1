package org.pocketbert.tokenizer;

/** One byte per code point, 0 by default. Empty pages are not stored. */
final class CodePointTable {
  private static final int CODE_POINTS = 0x110000;
  private static final int PAGE_BITS = 8;
  private final byte[][] pages = new byte[CODE_POINTS >> PAGE_BITS][];

  int get(int code) {
    byte[] page = pages[code >> PAGE_BITS];
    return page == null ? 0 : page[code & ((1 << PAGE_BITS) - 1)] & 0xFF;
  }

  /** Sets ranges, hexadecimal {@code FIRST} or {@code FIRST-LAST}, starting at an index in {@code words}. */
  void fill(String[] words, int from, int value) {
    for (int i = from; i < words.length; i++) {
      int dash = words[i].indexOf('-');
      int first = Integer.parseInt(dash < 0 ? words[i] : words[i].substring(0, dash), 16);
      int last = Integer.parseInt(words[i].substring(dash + 1), 16);
      for (int code = first; code <= last; code++) {
        int page = code >> PAGE_BITS;
        if (pages[page] == null) {
          pages[page] = new byte[1 << PAGE_BITS];
        }
        pages[page][code & ((1 << PAGE_BITS) - 1)] = (byte) value;
      }
    }
  }
}
